// SPDX-License-Identifier: Apache-2.0
#include "lockstep/communication.h"

#include <algorithm>
#include <unordered_map>

#include "src/base/at.h"
#include "src/model/dtype_bytes.h"

namespace lockstep {

namespace {

/// Bytes of what one member brings: whole buffers, or the part of each on which the call acts.
std::int64_t bytes_of(const Schedule& schedule, const Call& call) {
  std::int64_t bytes = 0;
  const std::vector<LocalBuffer>& buffers = schedule.model.local(call.rank).buffers;
  for (std::size_t i = 0; i < call.buffers->size(); ++i) {
    const LocalBuffer& buffer = buffers[at((*call.buffers)[i])];
    std::int64_t elements = buffer.numel;
    if (!call.owned.empty()) {
      elements = 0;
      for (const Interval& part : call.owned[i]) elements += part.size();
    }
    bytes += elements * static_cast<std::int64_t>(bytes_of(buffer.dtype));
  }
  return bytes;
}

}  // namespace

Communication communication(const Schedule& schedule, const Timeline& timeline, int optimizer_step) {
  Communication result;
  if (static_cast<std::size_t>(optimizer_step) >= timeline.step_ends.size()) return result;
  std::unordered_map<const Step*, std::size_t> place_of;
  std::vector<std::int64_t> of_rank(static_cast<std::size_t>(schedule.mesh.world()));
  for (const Event& event : timeline.events) {
    const int sends = operation(event.op).ring_sends;
    if (sends == 0 || event.calls.size() < 2 || event.optimizer_step != optimizer_step) continue;
    const auto [found, is_new] = place_of.emplace(event.calls.front().step, result.steps.size());
    const int members = static_cast<int>(event.calls.size());
    if (is_new) result.steps.push_back({event.calls.front().step, 0, members, members, 0});
    StepCommunication& step = result.steps[found->second];
    ++step.calls;
    step.smallest_group = std::min(step.smallest_group, members);
    step.largest_group = std::max(step.largest_group, members);
    const std::int64_t bytes = sends * (members - 1) * bytes_of(schedule, event.calls.front());
    step.bytes += bytes;
    for (const Call& call : event.calls) of_rank[at(call.rank)] += (bytes + members - 1) / members;
  }
  for (const StepCommunication& step : result.steps) {
    result.calls += step.calls;
    result.bytes += step.bytes;
  }
  if (!of_rank.empty()) result.most_bytes_of_a_rank = *std::max_element(of_rank.begin(), of_rank.end());
  return result;
}

}  // namespace lockstep
