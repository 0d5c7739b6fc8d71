// SPDX-License-Identifier: Apache-2.0
#include "lockstep/communication.h"

#include <algorithm>
#include <unordered_map>

#include "src/base/at.h"
#include "src/model/dtype_bytes.h"

namespace lockstep {

namespace {

/// A sum over the buffers of a call: of `elements(i, buffer)`, in bytes.
template <class Elements>
std::int64_t bytes_of(const Schedule& schedule, const Call& call, const Elements& elements) {
  std::int64_t bytes = 0;
  const std::vector<LocalBuffer>& buffers = schedule.model.local(call.rank).buffers;
  for (std::size_t i = 0; i < call.buffers->size(); ++i) {
    const LocalBuffer& buffer = buffers[at((*call.buffers)[i])];
    bytes += elements(i, buffer) * static_cast<std::int64_t>(model::bytes_of(buffer.dtype));
  }
  return bytes;
}

/// Bytes of what one member brings: whole buffers, or the part of each on which the call acts.
std::int64_t bytes_of(const Schedule& schedule, const Call& call) {
  return bytes_of(schedule, call, [&](std::size_t i, const LocalBuffer& buffer) {
    if (call.owned.empty()) return buffer.numel;
    std::int64_t elements = 0;
    for (const Interval& part : call.owned[i]) elements += part.size();
    return elements;
  });
}

/// What each member sends of `bytes` that it brings, by the decomposition of the op's row.
std::vector<std::int64_t> sent_by_members(const Schedule& schedule, const Event& event, std::int64_t bytes) {
  const Operation& row = operation(event.op);
  const int n = static_cast<int>(event.calls.size());
  const auto index = [&](int member) { return at((member % n + n) % n); };
  std::vector<std::int64_t> sent(event.calls.size(), bytes);
  if (row.value == Operation::Value::of_the_root) {
    sent[index(event.root - 1)] = 0;  // the last of the chain
  } else if (row.writes == Operation::Writes::root_everywhere) {
    sent[index(event.root)] = 0;
  } else if (row.writes == Operation::Writes::everywhere) {
    const std::int64_t parts = std::int64_t{row.ring_sends} * (n - 1);
    sent.assign(event.calls.size(), (parts * bytes + n - 1) / n);  // in equal parts
  } else {
    // A slice is sent by all but the one with which it ends: its member, or of a gather the one in front of that.
    const int last = row.writes == Operation::Writes::every_slice ? -1 : 0;
    for (int member = 0; member < n; ++member) {
      sent[index(member + last)] -= bytes_of(schedule, event.calls.front(), [&](std::size_t i, const auto&) {
        return event.cuts[i].slice(member).size();
      });
    }
  }
  return sent;
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
    const std::int64_t bytes = bytes_of(schedule, event.calls.front());
    step.bytes += std::int64_t{sends} * (members - 1) * bytes;
    const std::vector<std::int64_t> sent = sent_by_members(schedule, event, bytes);
    for (std::size_t i = 0; i < sent.size(); ++i) of_rank[at(event.calls[i].rank)] += sent[i];
  }
  for (const StepCommunication& step : result.steps) {
    result.calls += step.calls;
    result.bytes += step.bytes;
  }
  if (!of_rank.empty()) result.most_bytes_of_a_rank = *std::max_element(of_rank.begin(), of_rank.end());
  return result;
}

}  // namespace lockstep
