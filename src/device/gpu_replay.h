// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/device/gpu_memory.h"
#include "src/device/stream_order.h"
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

  /// Replays `elements` of every buffer of the plan, `most` at a time: step by step; where it can be done a second time
  /// with all steps in one kernel (with fewer than 128 threads in a block, which takes much longer than step by step,
  /// the first and the last block of elements alone); and where `order` has asynchronous steps once more on streams.
  /// Throws InternalError where two of them differ.
  numeric::Findings replay(const numeric::Plan& plan, const numeric::ReplayOptions& options, const Intervals& elements,
                           std::int64_t most, const StreamOrder& order = {});

  /// The same for a plan of a schedule with races, in order and then `different.size()` times on streams: adds 1 to
  /// `different` for each of these that finds other numbers than the replay in order.
  void race(const numeric::Plan& plan, const numeric::ReplayOptions& options, const Intervals& elements,
            std::int64_t most, const StreamOrder& order, std::vector<int>& different);

 private:
  enum class Fused { never, at_both_ends, always };
  struct Ways {
    Fused fused = Fused::never;
    std::size_t on_streams = 0;
  };
  struct Found {
    std::vector<std::uint64_t> in_order;
    std::vector<std::uint64_t> in_order_where_fused, fused;  ///< of the blocks with all steps in one kernel
    std::vector<std::vector<std::uint64_t>> on_streams;
  };
  /// The results of each way.
  Found run(const numeric::Plan& plan, const numeric::ReplayOptions& options, const Intervals& elements,
            std::int64_t most, const StreamOrder& order, const Ways& ways);

  Gpu& gpu_;
  const Model& model_;
  GpuMemory buffers_, tables_, results_;
};

}  // namespace lockstep::device
