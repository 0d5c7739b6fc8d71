// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/handed_over.h"

namespace lockstep::diagnosis {

Replayed replay_handed_over(const Schedule& schedule, const Timeline& timeline) {
  const int world = schedule.mesh.world();
  Replayed replayed;
  replayed.engine = std::make_unique<SymbolicEngine>(schedule, timeline);
  replayed.result = replayed.engine->run();
  for (int step = 0; step < static_cast<int>(timeline.step_ends.size()); ++step) {
    HandedOver& handed = replayed.steps.emplace_back();
    for (int rank = 0; rank < world; ++rank) {
      auto& buffers = handed.pieces.emplace_back();
      const int count = static_cast<int>(schedule.model.local(rank).buffers.size());
      for (int buffer = 0; buffer < count; ++buffer)
        buffers.push_back(replayed.engine->handed_over(rank, buffer, step));
    }
  }
  return replayed;
}

}  // namespace lockstep::diagnosis
