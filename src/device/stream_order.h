// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/device/gpu.h"
#include "src/device/gpu_program.h"

namespace lockstep::device {

/// What a plan does, side by side on the streams of a GPU as ranks do it on GPUs of their own. Each rank has a stream
/// for its steps, and an asynchronous step has another one: it begins after what its members launched before, and they
/// go on at once. A rank's stream waits for it where the schedule has a `wait`, and nowhere else.
///
/// So where the walk finds no race, every two launches that touch one buffer are ordered, and the numbers are those of
/// a replay in order. Where a `wait` is missing they race.
class StreamOrder {
 public:
  /// Without any asynchronous step.
  StreamOrder() = default;
  /// Both must outlive it.
  StreamOrder(const Timeline& timeline, const numeric::Plan& plan);

  /// Whether the plan has a step that runs beside others.
  bool is_asynchronous() const { return asynchronous_; }

  /// Launches the program of a block of the plan. With `delays` other than 0, asynchronous steps begin late, by times
  /// drawn with that number. describe(instruction) is called before each launch. Later launches are on stream 0 again.
  void launch(Gpu& gpu, kernels::Domain domain, const GpuProgram& program, const GpuBuffers& buffers,
              std::uint64_t delays, const std::function<void(const kernels::Instruction&)>& describe) const;

 private:
  class Launches;
  struct Wait {
    std::size_t before = 0;  // index into Plan::events
    int rank = 0;
    const Event* event = nullptr;
  };
  const numeric::Plan* plan_ = nullptr;
  std::vector<Wait> waits_;
  bool asynchronous_ = false;
};

}  // namespace lockstep::device
