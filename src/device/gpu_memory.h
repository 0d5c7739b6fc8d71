// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

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
  /// Throws GpuFailure with the numbers where a component does not fit.
  GpuMemoryPlan(const GpuFacts& facts, const Schedule& schedule, const numeric::Preparation& preparation,
                const std::vector<numeric::Task>& tasks);

  std::uint64_t for_buffers = 0;  ///< bytes of the largest block
  /// By task: elements of a block.
  std::vector<std::int64_t> block_elements;
};

/// From one slot to the next: whole packs, and no two slots in one line of a cache.
constexpr std::uint64_t stride_of(std::uint64_t elements) { return (elements + 511) / 512 * 512; }

/// "12.3 GiB"
std::string bytes_text(std::uint64_t bytes);

}  // namespace lockstep::device
