// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lockstep/tensor_file.h"

namespace lockstep::tensors {

/// The ranges of elements of a shard that follow each other in the whole tensor too.
class ShardRuns {
 public:
  ShardRuns(const std::vector<std::uint64_t>& shape, const TensorShard& shard);

  /// Calls work(begin, count, global) for the runs that elements [begin, end) of the shard consist of; `global` is the
  /// row-major index of the first in the whole tensor.
  template <class Work>
  void for_each(std::uint64_t begin, std::uint64_t end, const Work& work) const {
    while (begin < end) {
      const std::uint64_t within = begin % length_;
      const std::uint64_t count = std::min(length_ - within, end - begin);
      work(begin, count, global_index(begin / length_) + within);
      begin += count;
    }
  }

 private:
  /// Of the first element of a run.
  std::uint64_t global_index(std::uint64_t run) const;

  std::uint64_t length_ = 1;  ///< of a run
  std::uint64_t first_ = 0;   ///< global index of the shard's first element
  /// Dimensions that are counted through from run to run, the innermost first, and how far apart their steps are.
  std::vector<std::uint64_t> sizes_, strides_;
};

}  // namespace lockstep::tensors
