// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/own_sizes.h"

#include "lockstep/parametric.h"
#include "src/base/budget.h"
#include "src/diagnosis/workload.h"

namespace lockstep::diagnosis {

namespace {

/// Nothing where the engine does not decide.
std::optional<bool> is_right_by_classes(const Schedule& schedule) {
  switch (ParametricEngine(schedule).result().verdict) {
    case ParametricResult::Verdict::match:
      return true;
    case ParametricResult::Verdict::mismatch:
    case ParametricResult::Verdict::race:
      return false;
    case ParametricResult::Verdict::undecided:
      break;
  }
  return std::nullopt;
}

}  // namespace

bool is_replayed_beside(const Schedule& schedule) {
  constexpr double most_calls = 5e4, most_terms = 1e6;
  const Workload workload = estimate_workload(schedule);
  return workload.calls <= most_calls && workload.terms <= most_terms;
}

std::optional<bool> OwnSizes::replayed(const std::vector<Edit>& edits) {
  if (!is_replayed_) is_replayed_ = is_replayed_beside(schedule_);
  if (!*is_replayed_) return std::nullopt;
  return oracle_.answer(edits).right();
}

std::optional<bool> OwnSizes::by_classes(const std::vector<Edit>& edits) {
  const scenario::EditableSteps& own = oracle_.steps();
  std::optional<std::vector<Step>> steps = own.edited(edits);
  if (!steps || !own.are_valid(*steps)) return false;
  Schedule repaired = own.schedule_of();
  repaired.steps = std::move(*steps);
  try {
    const Budget budget(Budget::search);
    return is_right_by_classes(repaired);
  } catch (const InputError&) {
    return false;  // what a rank meets: a division by zero, a bucket that n does not divide
  } catch (const OverBudget&) {
    return std::nullopt;
  }
}

void OwnSizes::look_at(FoundRepair& repair) {
  if (repair.looked_at_own_sizes) return;
  repair.looked_at_own_sizes = true;
  const std::vector<Edit> edits = repair.plain_edits();
  try {
    repair.right_at_own_sizes = replayed(edits);
    repair.verified_by = "symbolic";
    if (repair.right_at_own_sizes) return;
    repair.right_at_own_sizes = by_classes(edits);
    repair.verified_by = "parametric";
  } catch (const OverBudget&) {
    // What the search has found stands, at its sizes.
  }
}

}  // namespace lockstep::diagnosis
