// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sharded_attention.h"

#include <cmath>

#include "src/base/at.h"

namespace lockstep::transformer {

namespace {

constexpr TensorParallelRegion::Sites attention_sites = {
    "attention.copy_to_tp",       "attention.reduce_from_tp",
    "attention.gather_sequence",  "attention.gather_sequence_backward",
    "attention.scatter_sequence", "attention.scatter_sequence_backward"};

}  // namespace

ShardedAttention::ShardedAttention(RankContext& context, const std::string& prefix, const Places& places)
    : context_(context),
      name_(prefix + "self_attention."),
      places_(places),
      region_(context, attention_sites),
      core_(context, places.query_positions, places.key_positions),
      size_(context.config.head_size),
      groups_(context.config.kv_heads / context.comm.size(Axis::tp)),
      queries_(context.config.heads / context.config.kv_heads) {}

Real ShardedAttention::rotate(const Real& rows, int direction) const {
  Real turned(rows.rows(), rows.cols());
  const Index half = size_ / 2;
  const Index heads = rows.rows() / static_cast<Index>(places_.positions.size());
  std::vector<double> speeds;
  for (Index i = 0; i < half; ++i)
    speeds.push_back(direction * std::pow(10000.0, -static_cast<double>(2 * i) / static_cast<double>(size_)));
  for (Index row = 0; row < rows.rows(); ++row) {
    for (Index i = 0; i < half; ++i) {
      const double angle = speeds[at(i)] * places_.rotary[at(row / heads)];
      const double first = rows(row, i), second = rows(row, half + i);
      turned(row, i) = first * std::cos(angle) - second * std::sin(angle);
      turned(row, half + i) = second * std::cos(angle) + first * std::sin(angle);
    }
  }
  return turned;
}

Real ShardedAttention::prepare(const Real& heads, const std::string& norm, NormState& state) const {
  Real rows = reshaped(heads, heads.size() / size_, size_);
  if (context_.config.qk_norm) rows = norm_forward(context_, name_ + norm, rows, state);
  if (!context_.config.learned_positions) rows = rotate(rows, 1);
  return reshaped(rows, heads.rows(), heads.cols());
}

Real ShardedAttention::prepare_backward(const Real& gradient, const std::string& norm, const NormState& state,
                                        LocalGradients& gradients) const {
  Real rows = reshaped(gradient, gradient.size() / size_, size_);
  if (!context_.config.learned_positions) rows = rotate(rows, -1);
  if (context_.config.qk_norm) rows = norm_backward(context_, name_ + norm, rows, state, gradients);
  return reshaped(rows, gradient.rows(), gradient.cols());
}

Task<Real> ShardedAttention::forward(Real input, State& state) {
  state.input = co_await region_.enter(std::move(input));
  Real qkv = state.input * transposed(context_.parameter(name_ + "linear_qkv.weight"));
  if (context_.has(name_ + "linear_qkv.bias")) add_to_rows(qkv, context_.parameter(name_ + "linear_qkv.bias"));
  // Each group of linear_qkv has its queries, its key and its value.
  Real query(qkv.rows(), groups_ * queries_ * size_), key(qkv.rows(), groups_ * size_),
      value(qkv.rows(), groups_ * size_);
  const Index stride = (queries_ + 2) * size_;
  for (int group = 0; group < groups_; ++group) {
    query.set_columns(group * queries_ * size_, columns_of(qkv, group * stride, queries_ * size_));
    key.set_columns(group * size_, columns_of(qkv, group * stride + queries_ * size_, size_));
    value.set_columns(group * size_, columns_of(qkv, group * stride + (queries_ + 1) * size_, size_));
  }
  query = prepare(query, "q_layernorm", state.query_norm);
  key = prepare(key, "k_layernorm", state.key_norm);
  query = co_await to_heads(context_.comm, "ulysses.query", Axis::sp, std::move(query));
  key = co_await to_heads(context_.comm, "ulysses.key", Axis::sp, std::move(key));
  value = co_await to_heads(context_.comm, "ulysses.value", Axis::sp, std::move(value));
  Real attended = co_await core_.forward(std::move(query), std::move(key), std::move(value), state.core);
  state.context = co_await to_tokens(context_.comm, "ulysses.context", Axis::sp, std::move(attended));
  Real partial = state.context * transposed(context_.parameter(name_ + "linear_proj.weight"));
  Real output = co_await region_.leave(std::move(partial));
  if (context_.has(name_ + "linear_proj.bias")) add_to_rows(output, context_.parameter(name_ + "linear_proj.bias"));
  co_return output;
}

Task<Real> ShardedAttention::backward(Real gradient, const State& state, LocalGradients& gradients) {
  const int rank = context_.comm.rank();
  if (context_.has(name_ + "linear_proj.bias"))
    add_gradient(gradients, name_ + "linear_proj.bias", rank, column_sums(gradient));
  const Real output = co_await region_.leave_backward(std::move(gradient));
  add_gradient(gradients, name_ + "linear_proj.weight", rank, transposed(output) * state.context);
  Real inner = output * context_.parameter(name_ + "linear_proj.weight");
  inner = co_await to_heads(context_.comm, "ulysses.context_backward", Axis::sp, std::move(inner));
  CoreAttention::Gradients core = co_await core_.backward(std::move(inner), state.core);
  Real query = co_await to_tokens(context_.comm, "ulysses.query_backward", Axis::sp, std::move(core.query));
  Real key = co_await to_tokens(context_.comm, "ulysses.key_backward", Axis::sp, std::move(core.key));
  Real value = co_await to_tokens(context_.comm, "ulysses.value_backward", Axis::sp, std::move(core.value));
  query = prepare_backward(query, "q_layernorm", state.query_norm, gradients);
  key = prepare_backward(key, "k_layernorm", state.key_norm, gradients);
  const Index stride = (queries_ + 2) * size_;
  Real qkv(query.rows(), groups_ * stride);
  for (int group = 0; group < groups_; ++group) {
    qkv.set_columns(group * stride, columns_of(query, group * queries_ * size_, queries_ * size_));
    qkv.set_columns(group * stride + queries_ * size_, columns_of(key, group * size_, size_));
    qkv.set_columns(group * stride + (queries_ + 1) * size_, columns_of(value, group * size_, size_));
  }
  add_gradient(gradients, name_ + "linear_qkv.weight", rank, transposed(qkv) * state.input);
  if (context_.has(name_ + "linear_qkv.bias"))
    add_gradient(gradients, name_ + "linear_qkv.bias", rank, column_sums(qkv));
  Real input = qkv * context_.parameter(name_ + "linear_qkv.weight");
  co_return co_await region_.enter_backward(std::move(input));
}

}  // namespace lockstep::transformer
