// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/handed_over.h"

#include <algorithm>

namespace lockstep::diagnosis {

namespace {

std::vector<HandedOver::Piece> owned_part(const std::vector<SymbolicEngine::Content>& contents,
                                          const Intervals& owned) {
  std::vector<HandedOver::Piece> pieces;
  auto content = contents.begin();
  for (const Interval& part : owned) {
    while (content != contents.end() && content->elements.end <= part.begin) ++content;
    for (auto at = content; at != contents.end() && at->elements.begin < part.end; ++at) {
      const Interval common = intersect(at->elements, part);
      if (!common.empty()) pieces.push_back({common, at->form});
    }
  }
  return pieces;
}

}  // namespace

Replayed replay_handed_over(const Schedule& schedule, const Timeline& timeline) {
  struct End {
    std::size_t event = 0;
    std::size_t step = 0, rank = 0;
  };
  const auto world = static_cast<std::size_t>(schedule.mesh.world());
  std::vector<End> ends;
  for (std::size_t step = 0; step < timeline.step_ends.size(); ++step) {
    for (std::size_t rank = 0; rank < world; ++rank) ends.push_back({timeline.rank_ends[step][rank], step, rank});
  }
  std::stable_sort(ends.begin(), ends.end(), [](const End& a, const End& b) { return a.event < b.event; });

  Replayed replayed;
  replayed.engine = std::make_unique<SymbolicEngine>(schedule, timeline);
  replayed.steps.resize(timeline.step_ends.size());
  for (HandedOver& step : replayed.steps) step.pieces.resize(world);
  auto next = ends.begin();
  const auto take = [&](std::size_t events) {
    for (; next != ends.end() && next->event <= events; ++next) {
      const std::vector<Intervals>& owned = timeline.owned[next->step][next->rank];
      auto& buffers = replayed.steps[next->step].pieces[next->rank];
      buffers.resize(owned.size());
      for (std::size_t buffer = 0; buffer < owned.size(); ++buffer) {
        const int rank = static_cast<int>(next->rank), index = static_cast<int>(buffer);
        buffers[buffer] = owned_part(replayed.engine->content(rank, index, schedule.result), owned[buffer]);
      }
    }
  };
  replayed.result = replayed.engine->run([&](std::size_t event) { take(event + 1); });
  take(timeline.events.size());
  return replayed;
}

}  // namespace lockstep::diagnosis
