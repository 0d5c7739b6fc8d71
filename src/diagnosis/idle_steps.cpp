// SPDX-License-Identifier: Apache-2.0
//
// Repairs after which a step does nothing that did something before.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/operation.h"
#include "src/diagnosis/repair_order.h"
#include "src/diagnosis/repair_search.h"

namespace lockstep::diagnosis {

/// Of the first repairs; those that leave a step idle go behind others, which come to be the first then.
void SearchForRepairs::look_for_idle() {
  constexpr std::size_t most_looked_at = 24;
  for (bool any = true; any;) {
    std::stable_sort(found_.repairs.begin(), found_.repairs.end(), ranks_before);
    any = false;
    for (std::size_t at = 0; at < std::min(most_looked_at, found_.repairs.size()); ++at) {
      any = any || !found_.repairs[at].looked_for_idle;
      look_for_idle(found_.repairs[at]);
    }
  }
}

/// Whether everything stays as it is without a step that the edits leave there.
bool SearchForRepairs::does_nothing(const ListedStep& step, const std::vector<Edit>& edits,
                                    const OracleAnswer& otherwise) {
  std::vector<Edit> more = edits;
  more.push_back(Edit::drop(step.name()));
  std::optional<std::vector<Step>> steps = space_.steps().edited(more);
  if (!steps) return false;
  const OracleAnswer answer = space_.answer(*steps);
  return answer.state == otherwise.state && answer.distance == otherwise.distance &&
         answer.wrong_buffers == otherwise.wrong_buffers && answer.owners == otherwise.owners;
}

bool SearchForRepairs::did_nothing(const ListedStep& step) {
  const auto [known, is_new] = did_nothing_.emplace(step.name(), false);
  if (is_new) {
    std::vector<Step> steps = space_.steps().steps();
    known->second = does_nothing(step, {}, space_.answer(steps));
  }
  return known->second;
}

/// A repair after which a step does nothing that did something before goes around what is wrong. What says once more
/// who owns what goes with the edit.
void SearchForRepairs::look_for_idle(FoundRepair& repair) {
  if (std::exchange(repair.looked_for_idle, true)) return;
  const std::vector<Edit> edits = repair.plain_edits();
  std::optional<std::vector<Step>> steps = space_.steps().edited(edits);
  if (!steps) return;
  const OracleAnswer answer = space_.answer(*steps);
  const std::vector<ListedStep> list = listed_steps(*steps);
  for (const ListedStep& step : list) {
    if (step.op() == Op::each && step.step->steps.empty()) repair.leaves_idle = true;
    const Operation& row = operation(step.op());
    // Without any norm none is wrong.
    const bool is_one_of_norms = row.counts && std::count_if(list.begin(), list.end(), [](const ListedStep& other) {
                                                 return operation(other.op()).counts;
                                               }) > 1;
    const bool does_something = step.op() == Op::scale || is_one_of_norms || row.adds == Operation::Adds::gradient ||
                                row.adds == Operation::Adds::buffer || row.ownership != Operation::Ownership::keeps ||
                                row.writes != Operation::Writes::nothing;
    // With another factor it may be meant to do nothing at these sizes.
    const bool is_weighted = std::any_of(repair.edits.begin(), repair.edits.end(), [&](const Candidate& edit) {
      return edit.kind == Candidate::Kind::factor && edit.step == step.name();
    });
    if (step.name().empty() || !does_something || is_weighted) continue;
    if (!does_nothing(step, edits, answer) || (step.op() != Op::backward && did_nothing(step))) continue;
    if (step.op() == Op::own && step.step->over && !step.step->over->picks.empty()) {
      ++repair.said_again;
      repair.edits.push_back({Candidate::Kind::drop, step.name(), Edit::drop(step.name())});
      repair.edits.back().is_with_previous = true;
      repair.tried_around = false;
      repair.sizes = repair.right_sizes = 0;
      repair.wrong_at.clear();
      repair.wrong_with.clear();
      return;
    }
    repair.leaves_idle = true;
  }
}

}  // namespace lockstep::diagnosis
