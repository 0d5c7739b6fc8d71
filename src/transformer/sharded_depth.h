// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/transformer/sharded_ends.h"
#include "src/transformer/sharded_layer.h"

namespace lockstep::transformer {

/// A rank's part of one depth of multi-token prediction, on the last stage of the pipeline: its own copy of the
/// embedding, norms of both inputs, a column-parallel projection whose output is gathered, a layer and a norm.
class ShardedDepth {
 public:
  ShardedDepth(RankContext& context, int depth, const ShardedAttention::Places& places);

  struct State {
    NormState embedding_norm, hidden_norm, final_norm;
    Real input;  ///< of the projection, all tokens of the piece
    ShardedLayer::State layer;
  };
  /// `tokens` of the piece as this depth sees them: one further on than the depth before.
  Task<Real> forward(Real hidden, std::vector<int> tokens, State& state);
  /// `auxiliary`: ShardedLayer. Yields the gradient of the hidden states.
  Task<Real> backward(Real gradient, std::vector<int> tokens, const State& state, Real auxiliary,
                      LocalGradients& gradients);

 private:
  Task<Real> project(Real both, State& state) const;
  Task<Real> project_backward(Real gradient, const State& state, LocalGradients& gradients) const;

  RankContext& context_;
  std::string name_;
  std::vector<int> positions_;  ///< of those tokens, learned
  ShardedEmbedding embedding_;
  ShardedLayer layer_;
};

}  // namespace lockstep::transformer
