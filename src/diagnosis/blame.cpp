// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/blame.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "src/diagnosis/mechanism.h"
#include "src/diagnosis/repairs.h"

namespace lockstep {

namespace {

/// The repair that explains most: the nearest, and of equally small ones that of a step that a turning point names.
const FoundRepair* explaining(const std::vector<FoundRepair>& repairs, const std::set<std::string>& turning_steps) {
  const auto key = [&](const FoundRepair& repair) {
    const bool named = std::any_of(repair.edits.begin(), repair.edits.end(),
                                   [&](const Candidate& edit) { return turning_steps.contains(edit.step); });
    const bool strange = repair.other_owners && repair.edits.front().kind != Candidate::Kind::restore;
    return std::tuple(strange, repair.edits.size(), repair.sizes - repair.right_sizes, repair.touches_right, !named,
                      distance_of(repair.edits), std::max(repair.added_bytes, 0.0));
  };
  const auto best = std::min_element(repairs.begin(), repairs.end(),
                                     [&](const FoundRepair& a, const FoundRepair& b) { return key(a) < key(b); });
  return best == repairs.end() ? nullptr : &*best;
}

/// A step that mixes what it should not explains more than one that could be added to mend it, or than two edits. A
/// repair that hands elements to other owners mends something, and explains nothing.
bool explains_better(const FoundRepair& repair, const std::set<std::string>& turning_steps) {
  if (repair.other_owners && repair.edits.front().kind != Candidate::Kind::restore) return false;
  if (turning_steps.empty()) return true;
  const bool named = std::any_of(repair.edits.begin(), repair.edits.end(),
                                 [&](const Candidate& edit) { return turning_steps.contains(edit.step); });
  return repair.edits.size() == 1 ? named || repair.edits.front().kind != Candidate::Kind::insert
                                  : std::all_of(repair.edits.begin(), repair.edits.end(), [&](const Candidate& edit) {
                                      return turning_steps.contains(edit.step);
                                    });
}

}  // namespace

void search_blame(CheckResult& result) {
  result.unnoticed = who_would_not_notice(result);
  std::set<std::string> turning_steps;
  for (const Blame& blame : result.blame) turning_steps.insert(blame.step);
  RepairOptions options;
  options.nearest_only = true;
  options.wanted = turning_steps;
  const RepairSearch search = find_repairs(result, options);
  const FoundRepair* repair = explaining(search.repairs, turning_steps);
  if (repair == nullptr) return;
  Repair plain = repair->plain();
  plain.verified = {"symbolic"};
  result.repairs = {std::move(plain)};
  if (!explains_better(*repair, turning_steps)) return;
  result.blame.clear();
  for (const Candidate& edit : repair->edits) {
    const bool known = std::any_of(result.blame.begin(), result.blame.end(),
                                   [&](const Blame& blame) { return blame.step == edit.step; });
    if (!known) result.blame.push_back({edit.step, mechanism_of(result, edit)});
  }
}

}  // namespace lockstep
