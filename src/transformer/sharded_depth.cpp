// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sharded_depth.h"

#include <fmt/format.h>

namespace lockstep::transformer {

namespace {

constexpr TensorParallelRegion::Sites projection_sites = {"mtp.copy_to_tp",       "mtp.reduce_from_tp",
                                                          "mtp.gather_sequence",  "mtp.gather_sequence_backward",
                                                          "mtp.scatter_sequence", "mtp.scatter_sequence_backward"};

}  // namespace

ShardedDepth::ShardedDepth(RankContext& context, int depth, const ShardedAttention::Places& places)
    : context_(context),
      name_(fmt::format("mtp.layers.{}.", depth)),
      positions_(places.learned),
      embedding_(context, "mtp."),
      layer_(context, layer_prefix(depth, true), context.config.has_experts(context.config.layers - 1), places) {
  for (int& position : positions_) position += depth + 1;
}

Task<Real> ShardedDepth::forward(Real hidden, std::vector<int> tokens, State& state) {
  const Real embedded = co_await embedding_.forward(std::move(tokens), positions_);
  Real both(hidden.rows(), 2 * hidden.cols());
  both.set_columns(0, norm_forward(context_, name_ + "enorm", embedded, state.embedding_norm));
  both.set_columns(hidden.cols(), norm_forward(context_, name_ + "hnorm", hidden, state.hidden_norm));
  Real projected = co_await project(std::move(both), state);
  const Real output = co_await layer_.forward(std::move(projected), state.layer);
  co_return norm_forward(context_, name_ + "final_layernorm", output, state.final_norm);
}

Task<Real> ShardedDepth::backward(Real gradient, std::vector<int> tokens, const State& state, Real auxiliary,
                                  LocalGradients& gradients) {
  gradient = norm_backward(context_, name_ + "final_layernorm", gradient, state.final_norm, gradients);
  gradient = co_await layer_.backward(std::move(gradient), state.layer, std::move(auxiliary), gradients);
  const Real both = co_await project_backward(std::move(gradient), state, gradients);
  const Index half = both.cols() / 2;
  Real embedded = norm_backward(context_, name_ + "enorm", columns_of(both, 0, half), state.embedding_norm, gradients);
  co_await embedding_.backward(std::move(embedded), std::move(tokens), positions_, gradients);
  co_return norm_backward(context_, name_ + "hnorm", columns_of(both, half, half), state.hidden_norm, gradients);
}

// Rows are what is gathered, so the parts of the columns are turned. What each rank then does with all columns is the
// same, or with sequence parallelism is done on its slice of the tokens: no sum is due in the backward pass.
Task<Real> ShardedDepth::project(Real both, State& state) const {
  TensorParallelRegion region(context_, projection_sites);
  state.input = co_await region.enter(std::move(both));
  Real part = context_.parameter(name_ + "eh_proj.weight") * transposed(state.input);
  const Real whole = co_await context_.comm.all_gather("mtp.gather_from_tp", Axis::tp, std::move(part));
  if (!context_.sequence_parallel) co_return transpose(whole);
  const Index tokens = whole.cols() / context_.comm.size(Axis::tp);
  co_return transpose(columns_of(whole, context_.comm.coordinate(Axis::tp) * tokens, tokens));
}

Task<Real> ShardedDepth::project_backward(Real gradient, const State& state, LocalGradients& gradients) const {
  TensorParallelRegion region(context_, projection_sites);
  if (context_.sequence_parallel)
    gradient = co_await context_.comm.all_gather("mtp.scatter_backward", Axis::tp, std::move(gradient));
  const std::string name = name_ + "eh_proj.weight";
  const Index columns = gradient.cols() / context_.comm.size(Axis::tp);
  const Real part = columns_of(gradient, context_.comm.coordinate(Axis::tp) * columns, columns);
  add_gradient(gradients, name, context_.comm.rank(), transposed(part) * state.input);
  Real input = part * context_.parameter(name);
  co_return co_await region.enter_backward(std::move(input));
}

}  // namespace lockstep::transformer
