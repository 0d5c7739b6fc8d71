// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "src/transformer/sharded_attention.h"
#include "src/transformer/sharded_experts.h"

namespace lockstep::transformer {

/// A rank's part of a transformer layer. With sequence parallelism its norms and residuals see a slice of the tokens.
class ShardedLayer {
 public:
  ShardedLayer(RankContext& context, const std::string& prefix, bool experts, const ShardedAttention::Places& places);

  struct State {
    NormState before_attention, before_mlp;
    ShardedAttention::State attention;
    ShardedMlp::State mlp;
    ShardedExperts::State experts;
  };
  Task<Real> forward(Real input, State& state);
  /// `auxiliary` has the factors on the auxiliary losses of the tokens of the piece.
  Task<Real> backward(Real gradient, const State& state, Real auxiliary, LocalGradients& gradients);

 private:
  RankContext& context_;
  std::string prefix_;
  ShardedAttention attention_;
  std::optional<ShardedMlp> mlp_;
  std::optional<ShardedExperts> experts_;
};

}  // namespace lockstep::transformer
