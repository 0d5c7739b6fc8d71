// SPDX-License-Identifier: Apache-2.0
#include "src/report/value_rules.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "src/diagnosis/kind_of_mistake.h"
#include "src/diagnosis/stale.h"

namespace lockstep::report {

namespace {

// Ranks that are wrong in like manner are one group, so that more are rarely there and say the same.
constexpr std::size_t most_compared_groups = 16;

void flatten(const std::vector<Step>& steps, std::vector<const Step*>& list) {
  for (const Step& step : steps) {
    list.push_back(&step);
    flatten(step.steps, list);
  }
}

/// Whether the repair takes a reduction from behind a reduce-scatter to a place in front of it, or lets the
/// reduce-scatter cut as the reduction behind it does: where they stand it runs over slices that are stale. What
/// stale_slices() reads off a replay, for results that come without one.
bool reduces_stale_slices(const CheckResult& result, const std::string& step) {
  if (result.repairs.empty()) return false;
  std::vector<const Step*> steps;
  flatten(result.scenario->schedule->steps, steps);
  const auto place = [&](const std::string& name) {
    return std::find_if(steps.begin(), steps.end(), [&](const Step* each) { return each->name == name; });
  };
  const auto narrows = [](const Step* each) {
    return operation(each->op).ownership == Operation::Ownership::intersects_own_slice;
  };
  const auto from = place(step);
  if (from == steps.end() || !operation((*from)->op).reduces()) return false;
  for (const Edit& edit : result.repairs.front().edits) {
    if (edit.step.to_string() != step) continue;
    if (edit.action == Edit::Action::set && edit.changes("geometry")) {
      const auto reduces = [](const Step* each) { return operation(each->op).reduces(); };
      if (narrows(*from) && std::any_of(std::next(from), steps.end(), reduces)) return true;
    }
    if (edit.action != Edit::Action::move) continue;
    const auto to = place(edit.beside.to_string());
    if (to < from && std::any_of(to, from, narrows)) return true;
  }
  return false;
}

}  // namespace

Mistake rule_of_values(const CheckResult& result, const Section& section, const std::string& step) {
  if (section.divergence != nullptr && symbolic_of(result) != nullptr &&
      !diagnosis::stale_slices(result, *section.divergence).empty())
    return Mistake::stale_slices;
  if (reduces_stale_slices(result, step)) return Mistake::stale_slices;
  std::vector<diagnosis::Difference> contents;
  std::set<std::pair<int, int>> seen;
  const std::vector<RankGroup>& groups = section.finding->groups;
  for (std::size_t index = 0; index < std::min(groups.size(), most_compared_groups); ++index) {
    if (groups[index].symbolic == nullptr) continue;
    for (const PieceResult& piece : groups[index].symbolic->pieces) {
      // The groups of a section hold the same parameter, so that one difference stands for all of these forms.
      if (piece.right || !seen.emplace(piece.form, piece.reference).second) continue;
      contents.push_back(diagnosis::difference_of(result, groups[index].ranks.front(), groups[index].buffer, piece));
    }
  }
  return diagnosis::kind_of_content(contents);
}

}  // namespace lockstep::report
