// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/repairs.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/budget.h"
#include "src/diagnosis/other_tests.h"
#include "src/diagnosis/repair_search.h"
#include "src/diagnosis/shrink.h"
#include "src/expression/parsed_once.h"

namespace lockstep::diagnosis {

std::size_t FoundRepair::count() const {
  return static_cast<std::size_t>(
      std::count_if(edits.begin(), edits.end(), [](const Candidate& edit) { return !edit.is_with_previous; }));
}

std::vector<Edit> FoundRepair::plain_edits() const {
  std::vector<Edit> list;
  list.reserve(edits.size());
  for (const Candidate& edit : edits) list.push_back(edit.edit);
  return list;
}

Repair FoundRepair::plain() const {
  Repair repair;
  for (const Candidate& edit : edits) {
    repair.edits.push_back(edit.edit);
    repair.steps.push_back(edit.step);
  }
  repair.sizes = sizes;
  repair.right_sizes = right_sizes;
  repair.wrong_at = wrong_at;
  repair.wrong_with = wrong_with;
  repair.reach = reach_of_layouts(repair);
  repair.other_owners = other_owners;
  repair.added_bytes = added_bytes;
  repair.bytes_known = bytes_known;
  return repair;
}

RepairSearch find_repairs(const CheckResult& result, const RepairOptions& options) {
  if (result.scenario == nullptr || result.scenario->schedule == nullptr || result.verdict == Verdict::match ||
      result.verdict == Verdict::error || wrong_in_model_alone(result))
    return {};
  const expression::ParsedOnce parsed_once;
  RepairSearch search;
  try {
    const SmallLayout smallest = smallest_layout(result);
    search = SearchForRepairs(result, options, smallest).run();
    search.at = smallest.sizes.to_string();
    constexpr int small_world = 64;
    if (!search.repairs.empty() || !search.cut_off.empty() || smallest.sizes.empty() ||
        result.scenario->schedule->mesh.world() > small_world)
      return search;
    RepairSearch here = SearchForRepairs(result, options, {}).run();
    here.tried += search.tried;
    here.without_norm += search.without_norm;
    here.wrong_at_own_sizes += search.wrong_at_own_sizes;
    if (here.at.empty()) here.at = search.at;
    if (here.cut_off.empty() && here.limit == 0) {
      here.limit = search.limit;
      here.not_tried = search.not_tried;
    }
    return here;
  } catch (const OverBudget& over) {
    search.cut_off = over.what();
  } catch (const InputError& error) {
    search.cut_off = fmt::format("of a scenario that it made it says \"{}\"", error.diagnostics().front().message);
  }
  return search;
}

}  // namespace lockstep::diagnosis
