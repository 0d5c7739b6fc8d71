// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sharded_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::transformer {

namespace {

constexpr TensorParallelRegion::Sites attention_sites = {
    "attention.copy_to_tp",       "attention.reduce_from_tp",
    "attention.gather_sequence",  "attention.gather_sequence_backward",
    "attention.scatter_sequence", "attention.scatter_sequence_backward"};

using Rows = Eigen::Map<const Real>;

/// One head: the softmax over the keys that are not ahead of a query.
Real attention_weights(const Real& query, const Real& key, const std::vector<int>& query_positions,
                       const std::vector<int>& key_positions) {
  Real scores = query * key.transpose() / std::sqrt(static_cast<double>(query.cols()));
  // Eigen's vectorized exp() makes the smallest number out of minus infinity, so what is ahead is set to 0 itself.
  const auto is_ahead = [&](Eigen::Index row, Eigen::Index column) {
    return key_positions[static_cast<std::size_t>(column)] > query_positions[static_cast<std::size_t>(row)];
  };
  for (Eigen::Index row = 0; row < scores.rows(); ++row) {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (Eigen::Index column = 0; column < scores.cols(); ++column) {
      if (!is_ahead(row, column)) largest = std::max(largest, scores(row, column));
    }
    for (Eigen::Index column = 0; column < scores.cols(); ++column) {
      scores(row, column) = is_ahead(row, column) ? 0 : std::exp(scores(row, column) - largest);
      sum += scores(row, column);
    }
    scores.row(row) /= sum;
  }
  return scores;
}

}  // namespace

ShardedAttention::ShardedAttention(RankContext& context, const std::string& prefix, const Places& places)
    : context_(context),
      name_(prefix + "self_attention."),
      places_(places),
      region_(context, attention_sites),
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

// Ulysses: a rank gives each member its part of the heads, and gets that of its own heads from all members.
Task<Real> ShardedAttention::to_heads(const char* site, Real tensor) const {
  const int members = context_.comm.size(Axis::sp);
  if (members == 1) co_return tensor;
  const Eigen::Index tokens = tensor.rows(), columns = tensor.cols() / members;
  Real packed(tokens * members, columns);
  for (int i = 0; i < members; ++i) packed.middleRows(i * tokens, tokens) = tensor.middleCols(i * columns, columns);
  std::vector<int> rows(static_cast<std::size_t>(members), static_cast<int>(tokens)), received;
  co_return co_await context_.comm.all_to_all(site, Axis::sp, std::move(packed), std::move(rows), received);
}

Task<Real> ShardedAttention::to_tokens(const char* site, Real tensor) const {
  const int members = context_.comm.size(Axis::sp);
  if (members == 1) co_return tensor;
  const Eigen::Index tokens = tensor.rows() / members, columns = tensor.cols();
  std::vector<int> rows(static_cast<std::size_t>(members), static_cast<int>(tokens)), received;
  const Real packed = co_await context_.comm.all_to_all(site, Axis::sp, std::move(tensor), std::move(rows), received);
  Real result(tokens, columns * members);
  for (int i = 0; i < members; ++i) result.middleCols(i * columns, columns) = packed.middleRows(i * tokens, tokens);
  co_return result;
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
  state.query = co_await to_heads("ulysses.query", std::move(query));
  key = co_await to_heads("ulysses.key", std::move(key));
  value = co_await to_heads("ulysses.value", std::move(value));
  state.key = co_await context_.comm.all_gather("cp.gather_key", Axis::cp, std::move(key));
  state.value = co_await context_.comm.all_gather("cp.gather_value", Axis::cp, std::move(value));
  Real attended(state.query.rows(), state.query.cols());
  state.weights.clear();
  for (Eigen::Index head = 0; head < state.query.cols() / size_; ++head) {
    const Eigen::Index of = head / queries_ * size_;
    state.weights.push_back(attention_weights(state.query.middleCols(head * size_, size_),
                                              state.key.middleCols(of, size_), places_.query_positions,
                                              places_.key_positions));
    attended.middleCols(head * size_, size_) = state.weights.back() * state.value.middleCols(of, size_);
  }
  state.context = co_await to_tokens("ulysses.context", std::move(attended));
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
  inner = co_await to_heads("ulysses.context_backward", std::move(inner));
  Real query = Real::Zero(state.query.rows(), state.query.cols());
  Real key = Real::Zero(state.key.rows(), state.key.cols());
  Real value = Real::Zero(state.value.rows(), state.value.cols());
  const double scale = 1 / std::sqrt(static_cast<double>(size_));
  for (Eigen::Index head = 0; head < query.cols() / size_; ++head) {
    const Eigen::Index of = head / queries_ * size_;
    const Real& weights = state.weights[static_cast<std::size_t>(head)];
    const Real from = inner.middleCols(head * size_, size_);
    value.middleCols(of, size_) += weights.transpose() * from;
    Real scores = from * state.value.middleCols(of, size_).transpose();
    const Eigen::VectorXd along = scores.cwiseProduct(weights).rowwise().sum();
    scores = ((scores.colwise() - along).cwiseProduct(weights) * scale).eval();
    query.middleCols(head * size_, size_) = scores * state.key.middleCols(of, size_);
    key.middleCols(of, size_) += scores.transpose() * state.query.middleCols(head * size_, size_);
  }
  key = co_await context_.comm.reduce_scatter("cp.dkv_reduce", Axis::cp, std::move(key));
  value = co_await context_.comm.reduce_scatter("cp.dkv_reduce", Axis::cp, std::move(value));
  query = co_await to_tokens("ulysses.query_backward", std::move(query));
  key = co_await to_tokens("ulysses.key_backward", std::move(key));
  value = co_await to_tokens("ulysses.value_backward", std::move(value));
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
