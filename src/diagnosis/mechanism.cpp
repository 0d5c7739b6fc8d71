// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mechanism.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/diagnosis/formulas.h"
#include "src/diagnosis/left_out.h"
#include "src/diagnosis/stale.h"
#include "src/diagnosis/step_list.h"
#include "src/diagnosis/step_words.h"
#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

namespace {

/// Whether an example of a parameter is one of what the blamed step does.
using IsActedOn = std::function<bool(const Parameter&)>;

/// "rank 0 counts NAME in the norm 2 times instead of 1"; "" where norms are right.
std::string numbers_of_norm(const CheckResult& result, const IsActedOn& is_acted_on) {
  const SymbolicResult* symbolic = symbolic_of(result);
  if (symbolic == nullptr || symbolic->norm.empty()) return "";
  const std::vector<Parameter>& parameters = result.scenario->schedule->model.parameters();
  const auto own = std::find_if(symbolic->norm.begin(), symbolic->norm.end(),
                                [&](const NormResult& one) { return is_acted_on(parameters[at(one.parameter)]); });
  const NormResult& norm = own == symbolic->norm.end() ? symbolic->norm.front() : *own;
  const std::string part =
      norm.elements > 0 && norm.elements < norm.of ? fmt::format("{} of {} elements of ", norm.elements, norm.of) : "";
  const std::string name = part + parameters[at(norm.parameter)].name;
  if (norm.counted == "mean_of_norms")
    return fmt::format("rank {} takes {} into a mean of norms, which is no norm of the whole", norm.rank, name);
  if (norm.counted == norm.expected)
    return fmt::format("rank {} counts {} in the norm before it is what the optimizer gets", norm.rank, name);
  return fmt::format("rank {} counts {} in the norm {} times instead of {}", norm.rank, name, norm.counted,
                     norm.expected);
}

/// "rank 1 gets g3 + (g0+g1)/2 of NAME where (g0+g1+g2+g3)/2 is right"; `told` becomes the formulas in it.
std::string numbers_of_first(const CheckResult& result, const IsActedOn& is_acted_on, std::vector<std::string>& told) {
  const SymbolicResult* symbolic = symbolic_of(result);
  if (symbolic == nullptr || result.verdict != Verdict::mismatch) return "";
  const Schedule& schedule = *result.scenario->schedule;
  Formulas formulas(schedule, *forms_of(result));
  const auto name = [&](int rank, int buffer) {
    const LocalBuffer& local = schedule.model.local(rank).buffers[at(buffer)];
    return schedule.model.parameters()[at(local.parameters.front())].name;
  };
  const auto is_wrong = [](const BufferResult& buffer) {
    return std::any_of(buffer.pieces.begin(), buffer.pieces.end(), [](const PieceResult& one) { return !one.right; });
  };
  const auto is_own = [&](const BufferResult& buffer) {
    const std::vector<int>& own = schedule.model.local(buffer.rank).buffers[at(buffer.buffer)].parameters;
    return is_wrong(buffer) && std::any_of(own.begin(), own.end(), [&](int parameter) {
             return is_acted_on(schedule.model.parameters()[at(parameter)]);
           });
  };
  const auto own = std::find_if(symbolic->buffers.begin(), symbolic->buffers.end(), is_own);
  for (auto each = own == symbolic->buffers.end() ? symbolic->buffers.begin() : own; each != symbolic->buffers.end();
       ++each) {
    const BufferResult& buffer = *each;
    for (const PieceResult& piece : buffer.pieces) {
      if (piece.right) continue;
      const std::string words =
          describe_difference(schedule, forms_of(result)->terms(piece.form, buffer.rank, buffer.buffer),
                              forms_of(result)->terms(piece.reference, buffer.rank, buffer.buffer));
      told = {formulas.formula(piece.form, buffer.rank, buffer.buffer, result.step),
              formulas.formula(piece.reference, buffer.rank, buffer.buffer, result.step)};
      return fmt::format("rank {} gets {} of {} where {} is right{}", buffer.rank, told.front(),
                         name(buffer.rank, buffer.buffer), told.back(),
                         words.empty() ? "" : fmt::format(" ({})", words));
    }
  }
  if (!symbolic->unowned.empty()) {
    const UnownedResult& unowned = symbolic->unowned.front();
    return fmt::format("nobody owns elements of {} that rank {} holds", name(unowned.rank, unowned.buffer),
                       unowned.rank);
  }
  return numbers_of_norm(result, is_acted_on);
}

/// Where a step goes, seen from where it stands.
std::string move_words(const std::vector<ListedStep>& steps, const Edit& edit, const std::string& name) {
  const std::string& other = edit.beside.name;
  const ListedStep *target = find_listed(steps, other), *own = find_listed(steps, name);
  const char* where = edit.after ? "after" : "before";
  // It stands there already, and the other one moves by an edit of its own.
  if (target != nullptr && own != nullptr && own->each == target->each && own - target == (edit.after ? 1 : -1))
    return fmt::format("belongs {} {}, which has to move as well", where, other);
  if (own != nullptr && own->each == other) {
    if (own->step->when) return fmt::format("runs within {} and should run {} it", other, where);
    return fmt::format("runs in every micro-batch and should run once, {} {}", where, other);
  }
  if (own != nullptr && target != nullptr && own->each.empty() && !target->each.empty())
    return fmt::format("runs once and should run in every micro-batch, {} {}", where, other);
  return fmt::format("comes too {}: it belongs {} {}", target > own ? "early" : "late", where, other);
}

/// " and each tp rank keeps its own share" where the wrong parameters are partial over the one axis of a sum.
std::string shares_of(const CheckResult& result, const Step& inserted) {
  if (!inserted.over || inserted.over->picks.size() != 1 || inserted.over->picks.front().coordinates ||
      inserted.reduction == Reduction::average)
    return "";
  const Axis axis = inserted.over->picks.front().axis;
  const std::vector<Parameter>& parameters = result.scenario->schedule->model.parameters();
  const schedule::SelectorList selectors(inserted.params.items());
  for (const int index : wrong_set(result).parameters) {
    const Parameter& parameter = parameters[at(index)];
    if (!selectors.chooses(parameter, parameter.numel())) continue;
    if (std::find(parameter.partial.begin(), parameter.partial.end(), axis) == parameter.partial.end()) return "";
  }
  return fmt::format(", and each {} rank keeps its own share", name_of(axis));
}

/// ", and mean averages over dp (2 ranks) as well": another step that brings in the very factor that all of what is
/// wrong is off by.
std::string again(const CheckResult& result, const std::vector<ListedStep>& steps, const Step& blamed) {
  const std::optional<Rational> ratio = overall_ratio(result);
  if (!ratio || ratio->is_zero() || ratio->is_one()) return "";
  const Schedule& schedule = *result.scenario->schedule;
  const std::vector<int> wrong = wrong_set(result).parameters;
  for (const ListedStep& listed : steps) {
    const Step& step = *listed.step;
    if (step.name == blamed.name || step.name.empty()) continue;
    const schedule::SelectorList selectors(step.params.items());
    const bool acts = std::any_of(wrong.begin(), wrong.end(), [&](int index) {
      const Parameter& parameter = schedule.model.parameters()[at(index)];
      return selectors.chooses(parameter, parameter.numel());
    });
    if (!acts) continue;
    if (step.reduction == Reduction::average && Rational(1, std::max(ranks_over(schedule, step.over), 1)) == *ratio)
      return fmt::format(", and {} averages over {} as well", step.name, group_text(schedule, step));
    if (step.by && constant_of(schedule, *step.by) == ratio)
      return fmt::format(", and {} multiplies by {} as well", step.name, factor_text(schedule, step.by));
  }
  return "";
}

/// "counts 12 of 24 elements of a and b in the norm": what a new norm counts that nothing does, where that is a part of
/// its parameters; "" where it is all of them. What is counted too often is counted by something.
std::string counting_of(const CheckResult& result, const Step& inserted) {
  const SymbolicResult* symbolic = symbolic_of(result);
  if (symbolic == nullptr || !operation(inserted.op).counts) return "";
  const std::vector<Parameter>& parameters = result.scenario->schedule->model.parameters();
  const schedule::SelectorList selectors(inserted.params.items());
  constexpr std::size_t most_names = 3;
  std::set<int> told;
  std::vector<std::string> names;
  bool is_whole = true;
  for (const NormResult& norm : symbolic->norm) {
    const Parameter& parameter = parameters[at(norm.parameter)];
    if (!selectors.chooses(parameter, parameter.numel())) continue;
    if (norm.counted != "0")
      return fmt::format("counts each element{} in the norm once",
                         scenario::says(inserted, "params") ? " of " + words_of_key(inserted, "params") : "");
    if (!told.insert(norm.parameter).second) continue;
    const bool is_part = norm.elements > 0 && norm.elements < norm.of;
    is_whole = is_whole && !is_part;
    names.push_back(is_part ? fmt::format("{} of {} elements of {}", norm.elements, norm.of, parameter.name)
                            : parameter.name);
  }
  if (is_whole) return "";
  if (names.size() > most_names) {
    const std::size_t more = names.size() - most_names;
    names.resize(most_names);
    names.push_back(fmt::format("{} more", more));
  }
  return fmt::format("counts {} in the norm", listed_words(std::move(names)));
}

std::string words_of(const CheckResult& result, const Candidate& candidate) {
  const Schedule& schedule = *result.scenario->schedule;
  const Edit& edit = candidate.edit;
  const std::vector<ListedStep> steps = listed_steps(schedule.steps);
  if (edit.action == Edit::Action::insert) {
    const char* where = edit.after ? "after" : "before";
    std::string deed = counting_of(result, edit.values);
    if (deed.empty()) deed = deed_of(schedule, edit.values) + shares_of(result, edit.values);
    // A step that needs another one beside it is blamed itself.
    if (edit.beside.name == candidate.step)
      return fmt::format("needs a {} {} it: nothing {}", operation(edit.values.op).name, where, deed);
    return fmt::format("is missing {} {}: nothing {}", where, edit.beside.name, deed);
  }
  const ListedStep* listed = find_listed(steps, candidate.step);
  if (listed == nullptr) return "is at fault";
  const Step& step = *listed->step;
  if (edit.action == Edit::Action::drop) {
    if (!edit.step.iteration.empty())
      return fmt::format("runs in micro-batch [{}] as well and should not", edit.step.iteration);
    return fmt::format("is a step too many: it {}{}", deed_of(schedule, step), again(result, steps, step));
  }
  if (edit.action == Edit::Action::duplicate)
    return fmt::format("should be there twice: it {}", deed_of(schedule, step));
  if (edit.action == Edit::Action::move) return move_words(steps, edit, candidate.step);
  std::vector<std::string> parts;
  // Of another op what it has in other words, and not what only one of the two has.
  const bool other_op = edit.changes("op");
  for (const auto* keys : {&edit.values.keys, &edit.removed}) {
    for (const std::string_view key : *keys) {
      if (other_op && key != "op" && (keys == &edit.removed || !scenario::says(step, key))) continue;
      std::string words = words_for_key(schedule, step, edit, key);
      if (key == "by" || key == "reduce") words += again(result, steps, step);
      if (parts.empty() || words != parts.back()) parts.push_back(std::move(words));  // keys of one geometry
    }
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

Blame mechanism_of(const CheckResult& result, const Candidate& edit) {
  const std::vector<ListedStep> steps = listed_steps(result.scenario->schedule->steps);
  Blame blame{edit.step, words_of(result, edit), {}};
  Step missing = edit.edit.values;
  if (edit.kind == Candidate::Kind::insert) {
    if (std::optional<LeftOut> other = left_out_by(result, missing)) {
      blame = std::move(other->blame);
      missing = std::move(other->missing);
      if (other->all_told)
        blame.why +=
            fmt::format(": nothing {}{}", deed_of(*result.scenario->schedule, missing), shares_of(result, missing));
    }
  }
  for (const BufferDivergence& divergence : result.divergences) {
    const std::string stale = stale_slices(result, divergence);
    if (stale.empty()) continue;
    const bool takes = divergence.point.step == edit.step;
    const bool leaves = stale.find(fmt::format(" {} left stale", edit.step)) != std::string::npos;
    if (!takes && !leaves) continue;
    blame.why = takes ? fmt::format("{}; {}", stale, blame.why)
                      : fmt::format("{}: {} {}", blame.why, divergence.point.step, stale);
    break;
  }
  const ListedStep* blamed = find_listed(steps, edit.step);
  const bool counts = operation(blamed != nullptr ? blamed->op() : missing.op).counts;
  const ActingStep acting(blamed != nullptr ? *blamed->step : missing);
  const auto is_acted_on = [&](const Parameter& parameter) { return acting.acts_on(parameter); };
  std::string numbers = counts ? numbers_of_norm(result, is_acted_on) : "";
  if (numbers.empty()) numbers = numbers_of_first(result, is_acted_on, blame.formulas);
  if (!numbers.empty()) blame.why += "; " + numbers;
  return blame;
}

}  // namespace lockstep::diagnosis
