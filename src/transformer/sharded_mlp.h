// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "src/transformer/rank_context.h"

namespace lockstep::transformer {

/// GELU, or SwiGLU of columns that alternate, gate and up.
Real activate(bool gated, const Real& inner);
/// The gradient of the inner values from that of the activated ones.
Real activate_backward(bool gated, const Real& inner, const Real& gradient);

/// A rank's part of a dense MLP, or of the shared experts: linear_fc1 column-parallel, linear_fc2 row-parallel.
class ShardedMlp {
 public:
  ShardedMlp(RankContext& context, const std::string& prefix, const TensorParallelRegion::Sites& sites)
      : context_(context), up_(prefix + "linear_fc1."), down_(prefix + "linear_fc2."), region_(context, sites) {}

  struct State {
    Real input, inner, active;
  };
  Task<Real> forward(Real input, State& state);
  Task<Real> backward(Real gradient, const State& state, LocalGradients& gradients);

 private:
  RankContext& context_;
  std::string up_, down_;
  TensorParallelRegion region_;
};

extern const TensorParallelRegion::Sites mlp_sites;

}  // namespace lockstep::transformer
