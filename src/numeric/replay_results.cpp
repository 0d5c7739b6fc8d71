// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/replay_results.h"

#include <algorithm>

#include "src/base/at.h"

namespace lockstep::numeric {

ReplayResults::ReplayResults(const Schedule& schedule, const Timeline& timeline) : schedule_(schedule) {
  std::size_t count = 0;
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    first_.push_back(count);
    count += schedule.model.local(rank).buffers.size();
  }
  first_.push_back(count);
  results_.assign(timeline.step_ends.size(), std::vector<HostBuffer>(count));
  references_.assign(timeline.step_ends.size(), std::vector<GradientHash>(schedule.model.logicals().size()));
}

void ReplayResults::merge(const Task& task, const Plan& plan, const Findings& found) {
  for (const PlannedEvent& planned : plan.events) {
    if (planned.event) continue;
    const PlannedNode& node = plan.nodes[at(planned.nodes.front())];
    HostBuffer& buffer = results_[at(planned.optimizer_step)][flat(node.node)];
    const Findings::Check& check = found.checks[at(planned.check)];
    buffer.right = buffer.right && check.right;
    buffer.hash += check.got;
    buffer.expected_hash += check.expected;
  }
  if (task.in_field) return;
  for (std::size_t step = 0; step < found.reference.size(); ++step) {
    for (std::size_t piece = 0; piece < plan.pieces.size(); ++piece) {
      references_[step][at(plan.pieces[piece].logical)] += found.reference[step][piece];
    }
  }
}

HostResult ReplayResults::collect(const Preparation& preparation) {
  const std::vector<Component>& list = preparation.components().list;
  HostResult result;
  result.sampled = preparation.sampled();
  result.notes = preparation.notes();
  for (const std::size_t component : unreachable_) {
    result.notes.push_back(
        preparation.name_of(list[component]) +
        " needs more bits than float64 has, and a factor that has no value modulo 2^61 - 1; it was not replayed.");
  }
  for (int rank = 0; rank < schedule_.mesh.world(); ++rank) {
    for (const LocalBuffer& buffer : schedule_.model.local(rank).buffers) result.of += buffer.numel;
  }
  std::size_t step = 0;
  const auto wrong = [](const HostBuffer& buffer) { return !buffer.right; };
  while (step + 1 < results_.size() && std::none_of(results_[step].begin(), results_[step].end(), wrong)) ++step;
  result.step = static_cast<int>(step);
  result.buffers = std::move(results_[step]);
  result.reference = std::move(references_[step]);
  result.match = std::none_of(result.buffers.begin(), result.buffers.end(), wrong);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Prepared& prepared = preparation.prepared()[i];
    for (const BufferNode& node : list[i].nodes) {
      if (node.name != 0) continue;
      HostBuffer& found = result.buffers[flat(node)];
      found.rank = node.rank;
      found.buffer = node.buffer;
      found.arithmetic = prepared.choice.arithmetic;
      found.replayed = !prepared.skipped && !unreachable_.contains(i);
    }
  }
  return result;
}

HostResult nothing_to_replay(const Schedule& schedule) {
  HostResult result;
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    for (const LocalBuffer& buffer : schedule.model.local(rank).buffers) result.of += buffer.numel;
  }
  result.reference.resize(schedule.model.logicals().size());
  return result;
}

}  // namespace lockstep::numeric
