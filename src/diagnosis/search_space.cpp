// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/search_space.h"

#include <algorithm>
#include <optional>
#include <set>

#include "lockstep/symbolic.h"
#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/diagnosis/difference.h"
#include "src/scenario/open_sizes.h"
#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

namespace {

std::set<std::string> wrong_names(const CheckResult& result) {
  std::set<std::string> names;
  for (const int parameter : wrong_set(result).parameters)
    names.insert(result.scenario->schedule->model.parameters()[at(parameter)].name);
  return names;
}

/// `small` is where the values of parameters are known, and what norms count.
WrongNames names_of_wrong(const CheckResult& result, const CheckResult& small) {
  WrongNames names = {wrong_names(result)};
  const SymbolicResult* symbolic = symbolic_of(small);
  if (symbolic == nullptr) return names;
  const Model& model = small.scenario->schedule->model;
  const auto name = [&](int parameter) { return model.parameters()[at(parameter)].name; };
  const auto add = [&](int rank, int buffer) {
    names.in_value.insert(name(model.local(rank).buffers[at(buffer)].parameters.front()));
  };
  for (const BufferResult& buffer : symbolic->buffers) {
    if (std::any_of(buffer.pieces.begin(), buffer.pieces.end(),
                    [](const PieceResult& piece) { return !piece.right && !piece.right_unclipped; }))
      add(buffer.rank, buffer.buffer);
  }
  for (const UnownedResult& unowned : symbolic->unowned) add(unowned.rank, unowned.buffer);
  for (const NormResult& norm : symbolic->norm) names.counted.insert(name(norm.parameter));
  return names;
}

bool inserts(const Edit& edit) { return edit.action == Edit::Action::insert; }

/// Whether a collective or a scale would stand where there is nothing yet to reduce or to scale.
bool acts_on_nothing_yet(const Edit& edit, const std::vector<ListedStep>& steps) {
  const ListedStep *beside = find_listed(steps, edit.beside.name), *moved = find_listed(steps, edit.step.name);
  if (beside == nullptr || (!inserts(edit) && (edit.action != Edit::Action::move || moved == nullptr))) return false;
  const Op op = inserts(edit) ? edit.values.op : moved->op();
  return (op == Op::scale || operation(op).collective) && is_before_contributions(steps, *beside, edit.after);
}

/// Which parameters an edit of `steps` changes anything for.
class ChangedBy {
 public:
  ChangedBy(const Candidate& candidate, const std::vector<ListedStep>& steps, const std::string& result)
      : steps_(steps), result_(result) {
    const Edit& edit = candidate.edit;
    const bool chooses = edit.changes("params");
    // No selectors choose all.
    if (chooses || edit.action == Edit::Action::insert) after_.emplace(edit.values.params.items());
    if (const ListedStep* step = find_listed(steps, candidate.step); step != nullptr && !inserts(edit)) {
      before_.emplace(*step->step);
      if (step->op() == Op::scale && edit.action != Edit::Action::move && !edit.changes("buffer"))
        buffer_ = step->step->buffer;
      params_alone_ = chooses && edit.values.keys.size() + edit.removed.size() == 1;
    }
  }

  bool changes(const Parameter& parameter) const {
    if (!buffer_.empty() && !is_written(steps_, buffer_, result_, parameter)) return false;
    const bool before = before_ && before_->acts_on(parameter);
    const bool after = after_ ? after_->chooses(parameter, parameter.numel()) : before;
    return params_alone_ ? before != after : before || after;
  }

 private:
  const std::vector<ListedStep>& steps_;
  const std::string& result_;
  std::string buffer_;  // where it is known to change nothing in another one
  std::optional<ActingStep> before_;
  std::optional<schedule::SelectorList> after_;
  bool params_alone_ = false;
};

/// Null where a scenario cannot do without the parameters that this one was deprived of: a step may need a use that
/// they alone have.
std::unique_ptr<SymbolicOracle> oracle_of(const Schedule& schedule, std::vector<Parameter> parameters) {
  try {
    auto oracle = std::make_unique<SymbolicOracle>(schedule, std::move(parameters));
    return oracle->steps().are_valid(schedule.steps) ? std::move(oracle) : nullptr;
  } catch (const InputError&) {
    return nullptr;
  }
}

/// Whether what is wrong in a result is what the symbolic engine finds wrong, and nothing else.
bool is_of_symbolic_alone(const CheckResult& result) {
  const SymbolicResult* symbolic = symbolic_of(result);
  return result.verdict == Verdict::mismatch && symbolic != nullptr && !symbolic->match &&
         symbolic->step == result.step && transformer_of(result) == nullptr && sample_of(result) == nullptr;
}

/// What `right` has otherwise than `now` gets the values of `open`: the expressions of sizes of which the numbers here
/// come.
void say_for_all_sizes(std::vector<Step>& right, const std::vector<ListedStep>& open,
                       const std::vector<ListedStep>& now) {
  for (Step& step : right) {
    say_for_all_sizes(step.steps, open, now);
    const ListedStep *general = find_listed(open, step.name), *written = find_listed(now, step.name);
    if (step.name.empty() || general == nullptr) continue;
    // Of a geometry that is there in another form, key by key, as edits merge it.
    const bool by_key = written != nullptr && written->step->geometry->kind == step.geometry->kind;
    for (const scenario::StepKey& key : scenario::step_keys()) {
      const bool in_geometry = key.name.starts_with("geometry.");
      if (key.name == "steps" || (by_key ? key.name == "geometry" : in_geometry)) continue;
      if (!scenario::says(step, in_geometry ? "geometry" : key.name) || key.same(step, *general->step)) continue;
      if (written == nullptr || !key.same(step, *written->step)) key.copy(*general->step, step);
    }
  }
}

/// A parameter, or one that is tied to it.
bool is_wrong_anywhere(const Model& model, std::size_t index, const std::vector<int>& wrong_buffers) {
  const int logical = model.logical_of(static_cast<int>(index));
  const std::vector<int> sites = model.sites(logical);
  return std::any_of(sites.begin(), sites.end(), [&](int site) { return wrong_buffers[at(site)] > 0; });
}

}  // namespace

SearchSpace::SearchSpace(const CheckResult& result, SmallLayout small)
    : result_(result), sizes_(std::move(small.sizes)), small_(std::move(small.check)) {
  found_ = find();
  if (!found_) return;
  limit();
  find_values();
}

bool SearchSpace::find() {
  if (small_ == nullptr && sizes_.empty() && is_of_symbolic_alone(result_))
    small_ = std::shared_ptr<const CheckResult>(std::shared_ptr<void>(), &result_);
  if (small_ == nullptr) small_ = check_at(*result_.scenario, sizes_);
  if (small_ == nullptr || small_->verdict == Verdict::match || small_->verdict == Verdict::error) return false;
  const Schedule& schedule = *small_->scenario->schedule;
  const std::vector<Parameter> classes = one_of_each_class(schedule);
  for (const auto* parameters : {&classes, &schedule.model.parameters()}) {
    std::unique_ptr<SymbolicOracle> oracle = oracle_of(schedule, *parameters);
    if (oracle == nullptr) continue;
    all_ = std::move(oracle);
    base_ = all_->answer_for(all_->steps().steps());
    if (!base_.right()) break;
  }
  if (all_ == nullptr || base_.right() || base_.state == OracleAnswer::State::not_applicable) return false;
  if (base_.state == OracleAnswer::State::failed) all_->add_what_ran(base_);
  few_base_ = base_;
  if (base_.state != OracleAnswer::State::wrong) return true;
  std::vector<Parameter> few = few_of(classes, wrong_names(*small_));
  // Each one that is right would be replayed twice.
  if (few.size() == all_->steps().schedule_of().model.parameters().size()) return true;
  std::unique_ptr<SymbolicOracle> oracle = oracle_of(schedule, std::move(few));
  if (oracle == nullptr) return true;
  const OracleAnswer there = oracle->answer_for(oracle->steps().steps());
  if (there.state == OracleAnswer::State::wrong) {
    few_ = std::move(oracle);
    few_base_ = there;
  }
  return true;
}

void SearchSpace::limit() {
  constexpr double buffer_replays = 2e6, least = 100, most = 12000;
  const Schedule& schedule = (few_ != nullptr ? few_ : all_)->steps().schedule_of();
  double buffers = 0;
  for (int rank = 0; rank < schedule.mesh.world(); ++rank)
    buffers += static_cast<double>(schedule.model.local(rank).buffers.size());
  most_tried_ = static_cast<int>(std::clamp(buffer_replays / std::max(buffers, 1.0), least, most));
}

void SearchSpace::find_values() {
  values_ = candidate_values(*result_.scenario->schedule, names_of_wrong(result_, *small_));
  std::set<Rational> factors;
  bool uneven = small_->step > 0;  // the same factor is right in an optimizer step before
  if (symbolic_of(*small_) != nullptr && small_->verdict == Verdict::mismatch) {
    for (const Difference& difference : differences(*small_)) {
      if (!difference.least) continue;
      uneven = uneven || *difference.least != *difference.most;
      for (const Rational& ratio : {*difference.least, *difference.most}) {
        if (!ratio.is_zero()) factors.insert(Rational(1) / ratio);
      }
    }
  }
  if (uneven) return;
  keep_sizes(values_, all_->steps().environment(), factors);
  // Tokens that are counted over too few ranks are other factors on other ranks, of which one may be a size.
  if (factors.size() > 1 || (!factors.empty() && values_.sizes.empty())) return;
  values_.token_counts.clear();
  values_.token_totals.clear();
}

std::optional<std::vector<Step>> SearchSpace::unedited_steps() const {
  const Scenario& file = *result_.scenario;
  if (file.edits.empty()) return {};
  WhatIf unedited{sizes_of(file, sizes_)};
  for (std::size_t i = 0; i < file.edits.size(); ++i) unedited.left_out.insert(i);
  try {
    std::vector<Step> right = read_scenario(file.document, file.file, unedited).schedule->steps;
    if (file.document.find("schedule")->find("framework") != nullptr) {
      const Scenario open = scenario::read_scenario_of_open_sizes(file.document, file.file, unedited);
      say_for_all_sizes(right, listed_steps(open.schedule->steps), listed_steps(steps().steps()));
    }
    return right;
  } catch (const InputError&) {
    return {};
  }
}

OracleAnswer SearchSpace::answer(std::vector<Step>& steps) {
  if (few_ != nullptr) {
    OracleAnswer answer = few_->answer_in_place(steps);
    if (!answer.right()) return answer;
  }
  return all_->answer_in_place(steps);
}

namespace {

/// Less of what was wrong is wrong, and nothing that was right.
bool is_less(const OracleAnswer& now, const OracleAnswer& before) {
  if (now.distance >= before.distance || now.wrong_buffers.size() != before.wrong_buffers.size()) return false;
  for (std::size_t at = 0; at < now.wrong_buffers.size(); ++at) {
    if (now.wrong_buffers[at] > 0 && before.wrong_buffers[at] == 0) return false;
  }
  return true;
}

}  // namespace

bool SearchSpace::mends_the_few(const OracleAnswer& now) const {
  return few_ != nullptr && now.wrong_buffers.size() != few_base_.wrong_buffers.size() && is_less(now, base_);
}

bool SearchSpace::is_better(const OracleAnswer& now) const {
  return few_base_.state == OracleAnswer::State::failed || is_less(now, few_base_);
}

bool SearchSpace::is_relevant(const Candidate& candidate, const std::vector<ListedStep>& steps) const {
  if (base_.wrong_buffers.empty()) return true;
  if (acts_on_nothing_yet(candidate.edit, steps)) return false;
  const ListedStep* old = find_listed(steps, candidate.step);
  if (old != nullptr && old->op() == Op::each) return true;
  const std::vector<std::string> all, &edited = candidate.edit.values.params.items();
  const schedule::SelectorList old_selectors(inserts(candidate.edit) ? edited
                                             : old == nullptr        ? all
                                                                     : old->step->params.items());
  const schedule::SelectorList new_selectors(edited);
  const bool chooses = candidate.edit.changes("params");
  const std::vector<Parameter>& parameters = all_->steps().schedule_of().model.parameters();
  Budget::spend(static_cast<std::int64_t>(parameters.size() + steps.size()));
  for (std::size_t at = 0; at < parameters.size(); ++at) {
    if (base_.wrong_buffers[at] == 0) continue;
    const std::int64_t numel = parameters[at].numel();
    if (old_selectors.chooses(parameters[at], numel) || (chooses && new_selectors.chooses(parameters[at], numel)))
      return true;
  }
  return false;
}

bool SearchSpace::acts_elsewhere(const Candidate& candidate) const {
  const std::vector<ListedStep> list = listed_steps(all_->steps().steps());
  const ListedStep* step = find_listed(list, candidate.step);
  if (base_.wrong_buffers.empty() || step == nullptr || candidate.edit.action != Edit::Action::set) return false;
  const ActingStep acting(*step->step);
  const Model& model = all_->steps().schedule_of().model;
  for (std::size_t at = 0; at < model.parameters().size(); ++at) {
    if (base_.wrong_buffers[at] > 0 && acting.acts_on(model.parameters()[at])) return false;
  }
  return true;
}

bool SearchSpace::touches_right(const std::vector<Candidate>& edits) const {
  if (base_.wrong_buffers.empty()) return false;
  const Model& model = all_->steps().schedule_of().model;
  const std::vector<ListedStep> list = listed_steps(all_->steps().steps());
  std::vector<ChangedBy> changed;
  changed.reserve(edits.size());
  for (const Candidate& edit : edits) changed.emplace_back(edit, list, all_->steps().schedule_of().result);
  for (std::size_t at = 0; at < model.parameters().size(); ++at) {
    const Parameter& parameter = model.parameters()[at];
    const bool has_gradient = !parameter.frozen && !(parameter.micro_batches && parameter.micro_batches->empty());
    if (!has_gradient || is_wrong_anywhere(model, at, base_.wrong_buffers)) continue;
    if (std::any_of(changed.begin(), changed.end(), [&](const ChangedBy& one) { return one.changes(parameter); }))
      return true;
  }
  return false;
}

bool SearchSpace::says_the_same_in_the_file(const std::vector<const Candidate*>& edits,
                                            const std::vector<Step>& steps) const {
  const std::vector<Edit>& written = result_.scenario->edits;
  const bool in_one_iteration = std::any_of(written.begin(), written.end(), [](const Edit& edit) {
    return !edit.step.iteration.empty() || !edit.beside.iteration.empty();
  });
  if (!in_one_iteration) return true;
  WhatIf edited{sizes_of(*result_.scenario, sizes_)};
  for (const Edit* edit : edits_of(edits)) edited.edits.push_back(*edit);
  const auto there = read_if_allowed(*result_.scenario, edited);
  return there != nullptr && there->schedule->steps == steps;
}

}  // namespace lockstep::diagnosis
