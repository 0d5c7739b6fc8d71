// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sharded_attention.h"

#include <cmath>

namespace lockstep::transformer {

namespace {

constexpr TensorParallelRegion::Sites attention_sites = {
    "attention.copy_to_tp",       "attention.reduce_from_tp",
    "attention.gather_sequence",  "attention.gather_sequence_backward",
    "attention.scatter_sequence", "attention.scatter_sequence_backward"};

using Rows = Eigen::Map<const Real>;

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
  const Eigen::Index half = size_ / 2;
  const Eigen::Index heads = rows.rows() / static_cast<Eigen::Index>(places_.positions.size());
  Eigen::ArrayXd speeds(half);
  for (Eigen::Index i = 0; i < half; ++i)
    speeds(i) = std::pow(10000.0, -static_cast<double>(2 * i) / static_cast<double>(size_));
  for (Eigen::Index row = 0; row < rows.rows(); ++row) {
    const Eigen::ArrayXd angles = direction * speeds * places_.rotary[static_cast<std::size_t>(row / heads)];
    const Eigen::ArrayXd first = rows.row(row).head(half), second = rows.row(row).tail(half);
    turned.row(row).head(half) = first * angles.cos() - second * angles.sin();
    turned.row(row).tail(half) = second * angles.cos() + first * angles.sin();
  }
  return turned;
}

Real ShardedAttention::prepare(const Real& heads, const std::string& norm, NormState& state) const {
  Real rows = Rows(heads.data(), heads.size() / size_, size_);
  if (context_.config.qk_norm) rows = norm_forward(context_, name_ + norm, rows, state);
  if (!context_.config.learned_positions) rows = rotate(rows, 1);
  return Rows(rows.data(), heads.rows(), heads.cols());
}

Real ShardedAttention::prepare_backward(const Real& gradient, const std::string& norm, const NormState& state,
                                        LocalGradients& gradients) const {
  Real rows = Rows(gradient.data(), gradient.size() / size_, size_);
  if (!context_.config.learned_positions) rows = rotate(rows, -1);
  if (context_.config.qk_norm) rows = norm_backward(context_, name_ + norm, rows, state, gradients);
  return Rows(rows.data(), gradient.rows(), gradient.cols());
}

Task<Real> ShardedAttention::forward(Real input, State& state) {
  state.input = co_await region_.enter(std::move(input));
  Real qkv = state.input * context_.parameter(name_ + "linear_qkv.weight").transpose();
  if (context_.has(name_ + "linear_qkv.bias")) qkv.rowwise() += context_.parameter(name_ + "linear_qkv.bias").row(0);
  // Each group of linear_qkv has its queries, its key and its value.
  Real query(qkv.rows(), groups_ * queries_ * size_), key(qkv.rows(), groups_ * size_),
      value(qkv.rows(), groups_ * size_);
  const Eigen::Index stride = (queries_ + 2) * size_;
  for (int group = 0; group < groups_; ++group) {
    query.middleCols(group * queries_ * size_, queries_ * size_) = qkv.middleCols(group * stride, queries_ * size_);
    key.middleCols(group * size_, size_) = qkv.middleCols(group * stride + queries_ * size_, size_);
    value.middleCols(group * size_, size_) = qkv.middleCols(group * stride + (queries_ + 1) * size_, size_);
  }
  query = prepare(query, "q_layernorm", state.query_norm);
  key = prepare(key, "k_layernorm", state.key_norm);
  query = co_await to_heads(context_.comm, "ulysses.query", Axis::sp, std::move(query));
  key = co_await to_heads(context_.comm, "ulysses.key", Axis::sp, std::move(key));
  value = co_await to_heads(context_.comm, "ulysses.value", Axis::sp, std::move(value));
  Real attended = co_await core_.forward(std::move(query), std::move(key), std::move(value), state.core);
  state.context = co_await to_tokens(context_.comm, "ulysses.context", Axis::sp, std::move(attended));
  Real partial = state.context * context_.parameter(name_ + "linear_proj.weight").transpose();
  Real output = co_await region_.leave(std::move(partial));
  if (context_.has(name_ + "linear_proj.bias"))
    output.rowwise() += context_.parameter(name_ + "linear_proj.bias").row(0);
  co_return output;
}

Task<Real> ShardedAttention::backward(Real gradient, const State& state, LocalGradients& gradients) {
  const int rank = context_.comm.rank();
  if (context_.has(name_ + "linear_proj.bias"))
    add_gradient(gradients, name_ + "linear_proj.bias", rank, gradient.colwise().sum());
  const Real output = co_await region_.leave_backward(std::move(gradient));
  add_gradient(gradients, name_ + "linear_proj.weight", rank, output.transpose() * state.context);
  Real inner = output * context_.parameter(name_ + "linear_proj.weight");
  inner = co_await to_heads(context_.comm, "ulysses.context_backward", Axis::sp, std::move(inner));
  CoreAttention::Gradients core = co_await core_.backward(std::move(inner), state.core);
  Real query = co_await to_tokens(context_.comm, "ulysses.query_backward", Axis::sp, std::move(core.query));
  Real key = co_await to_tokens(context_.comm, "ulysses.key_backward", Axis::sp, std::move(core.key));
  Real value = co_await to_tokens(context_.comm, "ulysses.value_backward", Axis::sp, std::move(core.value));
  query = prepare_backward(query, "q_layernorm", state.query_norm, gradients);
  key = prepare_backward(key, "k_layernorm", state.key_norm, gradients);
  const Eigen::Index stride = (queries_ + 2) * size_;
  Real qkv(query.rows(), groups_ * stride);
  for (int group = 0; group < groups_; ++group) {
    qkv.middleCols(group * stride, queries_ * size_) = query.middleCols(group * queries_ * size_, queries_ * size_);
    qkv.middleCols(group * stride + queries_ * size_, size_) = key.middleCols(group * size_, size_);
    qkv.middleCols(group * stride + (queries_ + 1) * size_, size_) = value.middleCols(group * size_, size_);
  }
  add_gradient(gradients, name_ + "linear_qkv.weight", rank, qkv.transpose() * state.input);
  if (context_.has(name_ + "linear_qkv.bias"))
    add_gradient(gradients, name_ + "linear_qkv.bias", rank, qkv.colwise().sum());
  Real input = qkv * context_.parameter(name_ + "linear_qkv.weight");
  co_return co_await region_.enter_backward(std::move(input));
}

}  // namespace lockstep::transformer
