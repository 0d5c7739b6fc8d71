// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/uneven_factors.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

namespace lockstep::diagnosis {

std::string uneven_factors_of_a_sequence(const Schedule& schedule, const Timeline& timeline) {
  const Mesh& mesh = schedule.mesh;
  const int ranks = mesh.size(Axis::cp) * mesh.size(Axis::sp);
  if (ranks == 1) return "";
  struct Scaled {
    const Event* first;
    int count;
  };
  // By time and micro-batch, and the rank at cp 0 and sp 0 of the same place.
  std::map<std::tuple<int, int, int>, Scaled> seen;
  const auto sentence = [](const Event& event, const std::string& other) {
    return fmt::format(
        "{} multiplies by {} on rank {} and {}, which share a sequence. Attention brings gradients of each one's loss "
        "to "
        "the other: where what is multiplied holds such gradients, not summed over the sequence yet, a match is not "
        "certain. --engine transformer replays real attention.",
        event.calls.front().step->name, event.by.to_string(), event.calls.front().rank, other);
  };
  for (const Event& event : timeline.events) {
    if (event.op != Op::scale) continue;
    const int rank = event.calls.front().rank;
    int place = rank;
    for (const Axis axis : {Axis::cp, Axis::sp}) place -= mesh.coordinate(rank, axis) * mesh.stride(axis);
    Scaled& scaled = seen.try_emplace({event.time, event.micro_batch, place}, Scaled{&event, 0}).first->second;
    ++scaled.count;
    if (scaled.first->by != event.by)
      return sentence(*scaled.first, fmt::format("by {} on rank {}", event.by.to_string(), rank));
  }
  for (const auto& [key, scaled] : seen) {
    if (scaled.count < ranks && !scaled.first->by.is_one()) return sentence(*scaled.first, "not on others");
  }
  return "";
}

}  // namespace lockstep::diagnosis
