// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/device/gpu_memory.h"
#include "src/numeric/replay.h"

namespace lockstep::device {

/// Replays plans on a GPU, one after the other.
class GpuReplay {
 public:
  /// Allocates memory for its largest block.
  GpuReplay(Gpu& gpu, const Model& model, std::uint64_t buffer_bytes)
      : gpu_(gpu), model_(model), buffers_(gpu), tables_(gpu), results_(gpu) {
    buffers_.at_least(buffer_bytes);
  }

  /// Replays `elements` of every buffer of the plan, `most` at a time: step by step, and where it can be done a second
  /// time with all steps in one kernel. Throws InternalError where the two differ.
  numeric::Findings replay(const numeric::Plan& plan, const numeric::ReplayOptions& options, const Intervals& elements,
                           std::int64_t most);

 private:
  Gpu& gpu_;
  const Model& model_;
  GpuMemory buffers_, tables_, results_;
};

}  // namespace lockstep::device
