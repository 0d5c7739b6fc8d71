// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/device/folding.h"
#include "src/device/gpu.h"
#include "src/numeric/preparation.h"

namespace lockstep::device {

/// Memory of a GPU, one allocation that grows; what it held is lost then.
class GpuMemory {
 public:
  explicit GpuMemory(Gpu& gpu) : gpu_(gpu) {}
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory();
  /// At least `bytes`.
  void* at_least(std::uint64_t bytes);

 private:
  Gpu& gpu_;
  void* memory_ = nullptr;
  std::uint64_t bytes_ = 0;
};

/// How much of a GPU's memory a replay takes, known before any of it is allocated.
struct GpuMemoryPlan {
  /// `most_elements`: of a block, 0 for no limit. Without `folding` all ranks are on one GPU; with it, on GPUs that a
  /// network joins, and the plan is that of the one that holds most: the same for all of them where `facts` says what
  /// the smallest has. Throws GpuTooSmall with the numbers where a component does not fit.
  GpuMemoryPlan(const GpuFacts& facts, const Schedule& schedule, const numeric::Preparation& preparation,
                const std::vector<numeric::Task>& tasks, std::int64_t most_elements, const Folding* folding = nullptr);

  std::uint64_t for_buffers = 0;  ///< bytes of the largest block
  /// By task: elements of a block.
  std::vector<std::int64_t> block_elements;
  /// A sentence where some components have blocks of more than `most_elements` all the same; else "".
  std::string note;
};

/// From one slot to the next: whole packs, and no two slots in one line of a cache.
constexpr std::uint64_t stride_of(std::uint64_t elements) { return (elements + 511) / 512 * 512; }

/// Elements of a slot besides a block's, where residues are exchanged: parts of equal length, one by each process, each
/// of whole packs.
constexpr std::uint64_t more_for_network(int processes) { return 2 * static_cast<std::uint64_t>(processes); }

}  // namespace lockstep::device
