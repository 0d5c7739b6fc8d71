// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/tensor_file.h"

namespace lockstep::cli {

/// What `hash --shard` says about one dimension: "DIM:INDEX/COUNT" (part INDEX of COUNT equal ones) or "DIM:FIRST@SIZE"
/// (from element FIRST of SIZE on).
struct ShardOption {
  std::string text;
  std::int64_t dim = 0;  ///< below 0: from the end
  bool equal_parts = true;
  std::uint64_t place = 0, of = 1;  ///< INDEX and COUNT, or FIRST and SIZE
};

/// Throws InputError for what is no such option.
std::vector<ShardOption> read_shard_options(const std::vector<std::string>& texts);

/// The shard that `tensor` is. Throws InputError where the options do not fit it; `file` is for the sentence.
TensorShard shard_of(const StoredTensor& tensor, const std::vector<ShardOption>& options, const std::string& file);

}  // namespace lockstep::cli
