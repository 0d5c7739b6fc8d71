// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/idioms.h"

#include <algorithm>
#include <map>

#include "lockstep/operation.h"
#include "src/diagnosis/product.h"
#include "src/diagnosis/repair_order.h"
#include "src/diagnosis/step_words.h"

namespace lockstep::diagnosis {

namespace {

/// The loss of a micro-batch is the mean over its tokens, and that of the step the mean over the micro-batches.
bool takes_mean(const Step& backward) {
  return backward.op == Op::backward &&
         Product::of(backward.by).to_string() == Product::parse("1 / (tokens * micro_batches)").to_string();
}

/// A sum over ranks that a scale by one over their number makes a mean of.
bool completes(const Schedule& schedule, const Step& scale, const Step& sum) {
  const Operation& row = operation(sum.op);
  if (scale.op != Op::scale || !scale.by || !row.collective || row.value != Operation::Value::reduction ||
      sum.reduction != Reduction::sum || scale.buffer != sum.buffer || scale.params != sum.params)
    return false;
  const int ranks = ranks_over(schedule, sum.over);
  return ranks > 1 && constant_of(schedule, *scale.by) == Rational(1, ranks);
}

}  // namespace

Idioms::Idioms(const std::vector<Step>& steps, const Schedule& schedule)
    : list_(listed_steps(steps)), parameters_(schedule.model.parameters()), result_(schedule.result) {
  find_means(schedule);
}

void Idioms::find_means(const Schedule& schedule) {
  std::map<std::string, std::set<std::string>> scales;  // by the sum
  const ListedStep* before = nullptr;
  for (const ListedStep& step : list_) {
    if (step.op() == Op::wait) continue;
    if (before != nullptr && before->each == step.each) {
      if (completes(schedule, *before->step, *step.step)) scales[step.name()].insert(before->name());
      if (completes(schedule, *step.step, *before->step)) scales[before->name()].insert(step.name());
    }
    before = &step;
  }
  for (const auto& [sum, names] : scales) {
    // Of two, one is too many, and nothing says which.
    if (names.size() == 1) completes_mean_.insert(*names.begin());
  }
}

/// A norm that counts something wrongly can be dropped, for what is in no norm is in none wrongly; but then the
/// gradient is not clipped by the norm of all of it. The same goes for a clip.
bool Idioms::loses_norm(const std::vector<Candidate>& edits) const {
  const auto of_norm = [](const ListedStep& step) {
    const Operation& row = operation(step.op());
    return row.counts || row.clips();
  };
  const auto is_dropped = [&](const ListedStep& step) {
    return std::any_of(edits.begin(), edits.end(), [&](const Candidate& edit) {
      return edit.edit.action == Edit::Action::drop && edit.edit.step.name == step.name();
    });
  };
  const auto counts = [](const ListedStep& step, const Parameter& parameter) {
    return !parameter.frozen && ActingStep(*step.step).acts_on(parameter);
  };
  return std::any_of(list_.begin(), list_.end(), [&](const ListedStep& lost) {
    return of_norm(lost) && is_dropped(lost) &&
           std::any_of(parameters_.begin(), parameters_.end(), [&](const Parameter& parameter) {
             return counts(lost, parameter) && std::none_of(list_.begin(), list_.end(), [&](const ListedStep& other) {
                      return other.op() == lost.op() && !is_dropped(other) && counts(other, parameter);
                    });
           });
  });
}

/// Where backward writes a buffer for one micro-batch, its own shares over the axes that parameters are partial over
/// are summed there, as automatic differentiation does; what ranks have from other data is summed wherever that costs
/// least.
bool Idioms::ends_backward(const std::vector<Candidate>& edits) const {
  if (edits.size() != 1) return false;
  const Edit& edit = edits.front().edit;
  const Step& added = edit.values;
  if (edit.action != Edit::Action::insert || added.op != Op::all_reduce || added.reduction != Reduction::sum ||
      !added.over || added.buffer == result_)
    return false;
  const ListedStep* beside = find_listed(list_, edit.beside.name);
  if (beside == nullptr || beside->each.empty()) return false;
  const ActingStep acting(added);
  return std::all_of(parameters_.begin(), parameters_.end(), [&](const Parameter& parameter) {
    return parameter.frozen || !acting.acts_on(parameter) ||
           std::all_of(added.over->picks.begin(), added.over->picks.end(), [&](const Over::Pick& pick) {
             return std::find(parameter.partial.begin(), parameter.partial.end(), pick.axis) != parameter.partial.end();
           });
  });
}

int Idioms::distance(const std::vector<Candidate>& edits) const {
  constexpr int moved_backward = 1, broken = 3;
  int sum = 0;
  const std::string* leading = nullptr;
  for (std::size_t i = 0; i < edits.size(); ++i) {
    const Candidate& edit = edits[i];
    if (!edit.is_with_previous) leading = &edit.step;
    // The same of a step that goes with it is no way further; another change of the same step is.
    if (edit.step != *leading) continue;
    const bool has_partner = edit.is_with_previous || (i + 1 < edits.size() && edits[i + 1].is_with_previous);
    int one = distance_of(edit);
    const ListedStep* step = find_listed(list_, edit.step);
    const bool is_new = edit.edit.action == Edit::Action::insert;
    if (step != nullptr && !is_new && edit.kind != Candidate::Kind::restore) {
      // The model decides where it runs.
      if (edit.kind == Candidate::Kind::move && step->op() == Op::backward) one += moved_backward;
      if (completes_mean_.contains(edit.step) && !has_partner) one = broken;
      if (edit.kind == Candidate::Kind::factor && takes_mean(*step->step)) one = broken;
    }
    sum += one;
  }
  return sum;
}

int Idioms::factor_place(const std::vector<Candidate>& edits) const {
  if (edits.size() != 1) return 0;
  enum Place { loss = 0, scale, elsewhere, added };
  const Edit& edit = edits.front().edit;
  if (edit.action == Edit::Action::insert) return edit.values.op == Op::scale ? added : 0;
  const ListedStep* step = find_listed(list_, edits.front().step);
  if (step == nullptr || edit.action != Edit::Action::set) return 0;
  if (edit.changes("reduce")) return elsewhere;
  if (!edit.changes("by")) return 0;
  if (step->op() != Op::backward) return scale;
  return Product::of(step->step->by).to_string() == "1" ? elsewhere : loss;
}

}  // namespace lockstep::diagnosis
