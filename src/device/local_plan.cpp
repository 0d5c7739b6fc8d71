// SPDX-License-Identifier: Apache-2.0
#include "src/device/local_plan.h"

#include <algorithm>
#include <set>

#include "src/base/at.h"

namespace lockstep::device {

namespace {

/// A set of processes as a list.
Processes list_of(const std::set<int>& processes) { return {processes.begin(), processes.end()}; }

LocalPlan::Meeting fold(const numeric::Plan& plan, const numeric::PlannedEvent& planned, const Folding& folding,
                        int process) {
  std::vector<int> process_of;
  for (const int node : planned.nodes) process_of.push_back(folding.process_of(plan.nodes[at(node)].node.rank));
  LocalPlan::Meeting meeting;
  for (std::size_t i = 0; i < process_of.size(); ++i) {
    if (process_of[i] == process) meeting.members.push_back(i);
  }
  if (meeting.members.empty()) return meeting;
  meeting.processes = list_of({process_of.begin(), process_of.end()});
  for (const int each : process_of) {
    const auto found = std::lower_bound(meeting.processes.begin(), meeting.processes.end(), each);
    meeting.at.push_back(static_cast<std::size_t>(found - meeting.processes.begin()));
  }
  return meeting;
}

}  // namespace

LocalPlan::LocalPlan(const numeric::Plan& plan, const Folding& folding, int process)
    : slot(plan.nodes.size(), -1), piece_slot(plan.pieces.size(), -1), shares(plan.pieces.size()) {
  std::vector<int> slots_of(static_cast<std::size_t>(folding.processes()));
  std::set<std::pair<int, int>> held;                      // pieces by process
  std::vector<std::set<int>> holders(plan.pieces.size());  // processes that hold a result, by piece
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const numeric::PlannedNode& node = plan.nodes[i];
    const int owner = folding.process_of(node.node.rank);
    const std::size_t piece = at(node.piece);
    int& count = slots_of[at(owner)];
    ++count;
    if (held.emplace(owner, node.piece).second) ++count;
    if (node.is_result) holders[piece].insert(owner);
    if (owner != process) continue;
    slot[i] = slots++;
    if (piece_slot[piece] < 0) piece_slot[piece] = piece_slots++;
  }
  most_slots = *std::max_element(slots_of.begin(), slots_of.end());
  for (std::size_t piece = 0; piece < plan.pieces.size(); ++piece) {
    const auto found = holders[piece].find(process);
    if (found == holders[piece].end()) continue;
    const std::int64_t numel = plan.pieces[piece].numel, of = static_cast<std::int64_t>(holders[piece].size());
    const std::int64_t number = std::distance(holders[piece].begin(), found), length = (numel + of - 1) / of;
    const Interval part{std::min(number * length, numel), std::min((number + 1) * length, numel)};
    if (!part.empty()) shares[piece] = {part};
  }
  for (const numeric::PieceUse& piece : plan.pieces) compared.emplace_back(piece.expected.size());
  for (const numeric::PlannedEvent& planned : plan.events) {
    Meeting& meeting = meetings.emplace_back();
    if (planned.event != nullptr) {
      if (operation(planned.event->op).collective) meeting = fold(plan, planned, folding, process);
      continue;
    }
    const std::size_t node = at(planned.nodes.front());
    if (slot[node] < 0) continue;
    const std::size_t piece = at(plan.nodes[node].piece);
    Intervals& set = compared[piece][at(planned.optimizer_step)];
    set = unite(set, *planned.owned);
  }
}

}  // namespace lockstep::device
