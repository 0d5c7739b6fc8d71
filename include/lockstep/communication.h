// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/timeline.h"

namespace lockstep {

/// What one step of the list communicates in an optimizer step, all its iterations together.
struct StepCommunication {
  const Step* step = nullptr;  ///< of the schedule
  /// Collectives, one per group and iteration, each for all buffers that it takes at once.
  std::int64_t calls = 0;
  int smallest_group = 0, largest_group = 0;  ///< ranks
  /// Bytes that all ranks together send: of the gradients alone, without the padding of buckets, and by the algorithm
  /// that sends least, as NVIDIA's nccl-tests count (doc/PERFORMANCE.md): a ring of n ranks sends 2·(n − 1) times the
  /// buffer for an all-reduce, n − 1 times for the others.
  std::int64_t bytes = 0;
};

/// What a schedule communicates in one optimizer step. A collective of one rank is none.
struct Communication {
  std::vector<StepCommunication> steps;   ///< in the order in which they come first; without what only meets
  std::int64_t calls = 0, bytes = 0;      ///< of all steps
  std::int64_t most_bytes_of_a_rank = 0;  ///< what the rank sends that sends most
};

/// Of a timeline that completed this optimizer step; an empty result where it did not. Refers to `schedule`.
/// Complexity: linear in the events, their calls and the buffers of these.
Communication communication(const Schedule& schedule, const Timeline& timeline, int optimizer_step = 0);

}  // namespace lockstep
