// SPDX-License-Identifier: Apache-2.0
#include "src/tensors/shard.h"

#include "lockstep/diagnostic.h"

namespace lockstep::tensors {

ShardRuns::ShardRuns(const std::vector<std::uint64_t>& shape, const TensorShard& shard) {
  const std::size_t dims = shape.size();
  if (shard.begin.size() != dims || shard.whole.size() != dims)
    throw InternalError("a shard has another number of dimensions than its tensor");
  // Inner dimensions that the shard has whole, and one more, lie without gaps.
  std::size_t d = dims;
  std::uint64_t stride = 1;
  bool gaps = false;
  while (d-- > 0) {
    first_ += shard.begin[d] * stride;
    if (gaps) {
      sizes_.push_back(shape[d]);
      strides_.push_back(stride);
    } else {
      length_ *= shape[d];
      gaps = shape[d] != shard.whole[d];
    }
    stride *= shard.whole[d];
  }
}

std::uint64_t ShardRuns::global_index(std::uint64_t run) const {
  std::uint64_t index = first_;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    index += run % sizes_[i] * strides_[i];
    run /= sizes_[i];
  }
  return index;
}

}  // namespace lockstep::tensors
