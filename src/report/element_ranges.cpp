// SPDX-License-Identifier: Apache-2.0
#include "src/report/element_ranges.h"

#include <iterator>
#include <set>

#include "lockstep/scenario.h"
#include "src/base/at.h"

namespace lockstep::report {

std::vector<Interval> element_ranges(const CheckResult& result, int logical) {
  const Schedule& schedule = *result.scenario->schedule;
  const Model& model = schedule.model;
  const Timeline& timeline = *result.timeline;
  std::set<std::int64_t> cuts = {0};
  const auto cut = [&](const Interval& interval) {
    cuts.insert(interval.begin);
    cuts.insert(interval.end);
  };
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    const int buffer = model.buffer_of(rank, logical);
    if (buffer < 0) continue;
    cut({0, model.local(rank).buffers[at(buffer)].numel});
    if (static_cast<std::size_t>(result.step) >= timeline.owned.size()) continue;
    for (const Interval& interval : timeline.owned[at(result.step)][at(rank)][at(buffer)]) {
      cut(interval);
    }
  }
  for (const OwnershipChange& change : timeline.ownership) {
    if (timeline.events[change.event].optimizer_step != result.step) continue;
    if (model.buffer_of(change.rank, logical) != change.buffer) continue;
    for (const Interval& interval : change.owned) cut(interval);
  }
  SymbolicEngine engine(schedule, timeline);
  engine.run([&](std::size_t index) {
    const Event& event = timeline.events[index];
    if (event.optimizer_step != result.step || operation(event.op).counts) return;
    for (const Call& call : event.calls) {
      const int buffer = model.buffer_of(call.rank, logical);
      if (buffer < 0) continue;
      for (const SymbolicEngine::Content& content : engine.content(call.rank, buffer, call.step->buffer)) {
        cut(content.elements);
      }
    }
  });
  std::vector<Interval> ranges;
  for (auto begin = cuts.begin(), end = std::next(begin); end != cuts.end(); ++begin, ++end) {
    ranges.push_back({*begin, *end});
  }
  return ranges;
}

}  // namespace lockstep::report
