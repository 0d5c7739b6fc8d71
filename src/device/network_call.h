// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/program.h"
#include "src/device/messenger.h"

namespace lockstep::device {

/// A collective between processes on values in the memory of their GPUs (GpuNetwork), among the instructions of a
/// program.
struct NetworkCall {
  enum class Kind { all_reduce, reduce, reduce_scatter, all_gather, broadcast, exchange };
  /// Elements that follow each other in a slot.
  struct Place {
    std::uint32_t slot = 0;
    std::uint64_t begin = 0;
  };

  Kind kind = Kind::all_reduce;
  std::size_t before = 0;  ///< number of the instruction ahead of which it is made
  std::uint32_t event = 0;
  Processes group;
  Place from, to;                     ///< the same place, where it works in place
  std::vector<std::uint64_t> counts;  ///< by process of the group; of one part for all, one
  std::size_t root = 0;               ///< index into `group`
  double factor = 1;                  ///< of a reduction

  /// exchange: elements from one process's part to the next in `to`, and how the parts are added up, to the first of
  /// them: an instruction whose slots are these parts.
  std::uint64_t stride = 0;
  kernels::Instruction sum;
};

}  // namespace lockstep::device
