// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/transformer/rank_context.h"

namespace lockstep::transformer {

/// The word embedding, its rows cut over tp, and the learned positions, whole on every rank.
class ShardedEmbedding {
 public:
  /// `prefix` of its parameters: that of a copy.
  explicit ShardedEmbedding(RankContext& context, const std::string& prefix = "")
      : context_(context),
        words_(prefix + "embedding.word_embeddings.weight"),
        learned_(prefix + "embedding.position_embeddings.weight") {}
  /// `tokens` and `positions` of the piece. Yields the rank's part of it: with sequence parallelism a slice.
  Task<Real> forward(std::vector<int> tokens, const std::vector<int>& positions) const;
  Task<Real> backward(Real gradient, std::vector<int> tokens, const std::vector<int>& positions,
                      LocalGradients& gradients) const;

 private:
  RankContext& context_;
  std::string words_, learned_;
};

/// The output layer, its rows cut over tp, and the cross-entropy over logits that stay cut (Shoeybi et al., 2019).
class ShardedHead {
 public:
  explicit ShardedHead(RankContext& context);

  struct State {
    Real input;
    Real gradient;  ///< of the logits, for losses that each count 1
  };
  /// `targets` of the piece.
  Task<> forward(Real input, std::vector<int> targets, State& state) const;
  /// `weights` of the tokens of the piece.
  Task<Real> backward(const Real& weights, const State& state, LocalGradients& gradients) const;

 private:
  RankContext& context_;
};

}  // namespace lockstep::transformer
