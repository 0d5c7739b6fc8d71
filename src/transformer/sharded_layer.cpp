// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sharded_layer.h"

namespace lockstep::transformer {

ShardedLayer::ShardedLayer(RankContext& context, const std::string& prefix, bool experts,
                           const ShardedAttention::Places& places)
    : context_(context), prefix_(prefix), attention_(context, prefix, places) {
  if (experts)
    experts_.emplace(context, prefix + "mlp.");
  else
    mlp_.emplace(context, prefix + "mlp.", mlp_sites);
}

Task<Real> ShardedLayer::forward(Real input, State& state) {
  Real normed =
      co_await norm_forward_at("attention.norm", context_, prefix_ + "input_layernorm", input, state.before_attention);
  Real middle = co_await attention_.forward(std::move(normed), state.attention);
  middle += input;
  normed = co_await norm_forward_at("mlp.norm", context_, prefix_ + "pre_mlp_layernorm", middle, state.before_mlp);
  Real output;
  if (experts_)
    output = co_await experts_->forward(std::move(normed), state.experts);
  else
    output = co_await mlp_->forward(std::move(normed), state.mlp);
  co_return output + middle;
}

Task<Real> ShardedLayer::backward(Real gradient, const State& state, Real auxiliary, LocalGradients& gradients) {
  Real inner;
  if (context_.sequence_parallel)
    auxiliary = rows_of(auxiliary, context_.comm.coordinate(Axis::tp) * gradient.rows(), gradient.rows());
  if (experts_)
    inner = co_await experts_->backward(gradient, state.experts, std::move(auxiliary), gradients);
  else
    inner = co_await mlp_->backward(gradient, state.mlp, gradients);
  gradient += co_await norm_backward_at("mlp.norm", context_, prefix_ + "pre_mlp_layernorm", std::move(inner),
                                        state.before_mlp, gradients);
  inner = co_await attention_.backward(gradient, state.attention, gradients);
  gradient += co_await norm_backward_at("attention.norm", context_, prefix_ + "input_layernorm", std::move(inner),
                                        state.before_attention, gradients);
  co_return gradient;
}

}  // namespace lockstep::transformer
