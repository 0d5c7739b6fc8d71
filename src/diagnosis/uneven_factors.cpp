// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/uneven_factors.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

namespace lockstep::diagnosis {

std::string uneven_factors_of_a_sequence(const Schedule& schedule, const Timeline& timeline) {
  const Mesh& mesh = schedule.mesh;
  if (mesh.size(Axis::cp) == 1 && mesh.size(Axis::sp) == 1) return "";
  // By time and micro-batch, and the rank at cp 0 and sp 0 of the same place.
  std::map<std::tuple<int, int, int>, const Event*> seen;
  for (const Event& event : timeline.events) {
    if (event.op != Op::scale) continue;
    const int rank = event.calls.front().rank;
    int place = rank;
    for (const Axis axis : {Axis::cp, Axis::sp}) place -= mesh.coordinate(rank, axis) * mesh.stride(axis);
    const auto [first, is_new] = seen.try_emplace({event.time, event.micro_batch, place}, &event);
    if (is_new || first->second->by == event.by) continue;
    return fmt::format(
        "{} multiplies by {} on rank {} and by {} on rank {}, which share a sequence. Attention brings gradients of "
        "each "
        "one's loss to the other, so that these numbers weigh parts of both: a match holds where they do not mix. "
        "--engine transformer replays real attention.",
        event.calls.front().step->name, first->second->by.to_string(), first->second->calls.front().rank,
        event.by.to_string(), rank);
  }
  return "";
}

}  // namespace lockstep::diagnosis
