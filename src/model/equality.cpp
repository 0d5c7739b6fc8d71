// SPDX-License-Identifier: Apache-2.0
// Where something was written is left out. Each member is named, so that one more does not compile until somebody has
// said what it is.
#include <tuple>

#include "lockstep/batch.h"
#include "lockstep/model.h"

namespace lockstep {

bool operator==(const Parameter& a, const Parameter& b) {
  const auto content = [](const Parameter& parameter) {
    const auto& [name, shape, dtype, stage, chunk, shard, partial, dispatch, tied, copy, uses, micro_batches, only,
                 frozen, tags, place] = parameter;
    return std::tie(name, shape, dtype, stage, chunk, shard, partial, dispatch, tied, copy, uses, micro_batches, only,
                    frozen, tags);
  };
  return content(a) == content(b);
}

bool operator==(const Loss& a, const Loss& b) {
  const auto content = [](const Loss& loss) {
    const auto& [kind, weight, place] = loss;
    return std::tie(kind, weight);
  };
  return content(a) == content(b);
}

bool operator==(const Batch& a, const Batch& b) {
  const auto content = [](const Batch& batch) {
    const auto& [counts, tokens, loss, weight] = batch;
    return std::tie(counts, tokens, loss, weight);
  };
  return content(a) == content(b);
}

}  // namespace lockstep
