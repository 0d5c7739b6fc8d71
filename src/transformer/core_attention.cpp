// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/core_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/at.h"

namespace lockstep::transformer {

namespace {

// The pipeline has 0 and 1.
constexpr int key_value_channel = 2, gradient_channel = 3;

double scale_of(Index head_size) { return 1 / std::sqrt(static_cast<double>(head_size)); }

/// Keys and values travel as one tensor.
Real side_by_side(const Real& key, const Real& value) {
  Real both(key.rows(), key.cols() + value.cols());
  both.set_columns(0, key);
  both.set_columns(key.cols(), value);
  return both;
}

}  // namespace

Index CoreAttention::key_of(Index head) const {
  return head / (context_.config.heads / context_.config.kv_heads) * context_.config.head_size;
}

Task<Real> CoreAttention::forward(Real query, Real key, Real value, State& state) const {
  state.query = std::move(query);
  state.key = std::move(key);
  state.value = std::move(value);
  const ContextExchange exchange = context_.config.context_exchange;
  if (exchange == ContextExchange::ring) co_return co_await ring(state);
  if (exchange == ContextExchange::all_to_all) {
    state.query = co_await to_heads(context_.comm, "ulysses.query", Axis::cp, std::move(state.query));
    state.key = co_await to_heads(context_.comm, "ulysses.key", Axis::cp, std::move(state.key));
    state.value = co_await to_heads(context_.comm, "ulysses.value", Axis::cp, std::move(state.value));
    Real context = attend(key_positions_, state);
    co_return co_await to_tokens(context_.comm, "ulysses.context", Axis::cp, std::move(context));
  }
  state.key = co_await context_.comm.all_gather("cp.gather_key", Axis::cp, std::move(state.key));
  state.value = co_await context_.comm.all_gather("cp.gather_value", Axis::cp, std::move(state.value));
  co_return attend(query_positions_, state);
}

Task<CoreAttention::Gradients> CoreAttention::backward(Real gradient, const State& state) const {
  const ContextExchange exchange = context_.config.context_exchange;
  if (exchange == ContextExchange::ring) co_return co_await ring_backward(std::move(gradient), state);
  Communicator& comm = context_.comm;
  if (exchange == ContextExchange::all_to_all) {
    gradient = co_await to_heads(comm, "ulysses.context_backward", Axis::cp, std::move(gradient));
    Gradients result = attend_backward(gradient, state);
    result.query = co_await to_tokens(comm, "ulysses.query_backward", Axis::cp, std::move(result.query));
    result.key = co_await to_tokens(comm, "ulysses.key_backward", Axis::cp, std::move(result.key));
    result.value = co_await to_tokens(comm, "ulysses.value_backward", Axis::cp, std::move(result.value));
    co_return result;
  }
  Gradients result = attend_backward(gradient, state);
  result.key = co_await comm.reduce_scatter("cp.dkv_reduce", Axis::cp, std::move(result.key));
  result.value = co_await comm.reduce_scatter("cp.dkv_reduce", Axis::cp, std::move(result.value));
  co_return result;
}

// Head by head: the softmax over the keys that are not ahead of a query.
Real CoreAttention::attend(const std::vector<int>& query_positions, State& state) const {
  const Index size = context_.config.head_size;
  Real context(state.query.rows(), state.query.cols());
  state.weights.clear();
  const auto ahead = [&](Index row, Index column) { return key_positions_[at(column)] > query_positions[at(row)]; };
  for (Index head = 0; head < state.query.cols() / size; ++head) {
    const Index of = key_of(head);
    Real scores =
        columns_of(state.query, head * size, size) * transposed(columns_of(state.key, of, size)) * scale_of(size);
    for (Index row = 0; row < scores.rows(); ++row) {
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (Index column = 0; column < scores.cols(); ++column) {
        if (!ahead(row, column)) largest = std::max(largest, scores(row, column));
      }
      for (Index column = 0; column < scores.cols(); ++column) {
        scores(row, column) = ahead(row, column) ? 0 : std::exp(scores(row, column) - largest);
        sum += scores(row, column);
      }
      scores.row(row) /= sum;
    }
    context.set_columns(head * size, scores * columns_of(state.value, of, size));
    state.weights.push_back(std::move(scores));
  }
  return context;
}

CoreAttention::Gradients CoreAttention::attend_backward(const Real& gradient, const State& state) const {
  const Index size = context_.config.head_size;
  Gradients result{Real(state.query.rows(), state.query.cols()), Real(state.key.rows(), state.key.cols()),
                   Real(state.value.rows(), state.value.cols())};
  for (Index head = 0; head < state.query.cols() / size; ++head) {
    const Index of = key_of(head);
    const Real& weights = state.weights[at(head)];
    const Real from = columns_of(gradient, head * size, size);
    result.value.add_to_columns(of, transposed(weights) * from);
    Real scores = from * transposed(columns_of(state.value, of, size));
    subtract_from_columns(scores, row_dots(scores, weights));
    scores = hadamard(std::move(scores), weights) * scale_of(size);
    result.query.set_columns(head * size, scores * columns_of(state.key, of, size));
    result.key.add_to_columns(of, transposed(scores) * columns_of(state.query, head * size, size));
  }
  return result;
}

Task<Real> CoreAttention::pass_on(const char* site, int channel, int owner, Real tensor) const {
  Communicator& comm = context_.comm;
  const std::vector<int>& ring = comm.group(Axis::cp);
  const int members = comm.size(Axis::cp), me = comm.coordinate(Axis::cp);
  if (comm.drops(site)) tensor = Real(tensor.rows(), tensor.cols());
  // Who sends block b receives block b - 1.
  const auto name = [&](int of) { return fmt::format("{} with the block of rank {}", site, ring[at(of)]); };
  std::string out = name((owner + 1) % members), in = name(owner);
  co_await comm.send(std::move(out), ring[at((me + 1) % members)], channel, std::move(tensor));
  co_return co_await comm.receive(std::move(in), ring[at((me + members - 1) % members)], channel);
}

// The running softmax of a query: the largest score so far, and sum and result relative to it.
Task<Real> CoreAttention::ring(State& state) const {
  const int members = context_.comm.size(Axis::cp), me = context_.comm.coordinate(Axis::cp);
  const Index size = context_.config.head_size, heads = state.query.cols() / size;
  const Index tokens = state.query.rows(), keys = state.key.rows(), columns = state.key.cols();
  Real largest = Real(tokens, heads, -std::numeric_limits<double>::infinity());
  Real sums = Real(tokens, heads);
  state.result = Real(tokens, state.query.cols());
  Real block = side_by_side(state.key, state.value);
  for (int step = 0; step < members; ++step) {
    const int owner = (me + members - step) % members;
    if (step > 0) block = co_await pass_on("cp.ring_key_value", key_value_channel, owner, std::move(block));
    const auto first = static_cast<std::size_t>(owner * keys);
    for (Index head = 0; head < heads; ++head) {
      const Index of = key_of(head);
      const Real scores =
          columns_of(state.query, head * size, size) * transposed(columns_of(block, of, size)) * scale_of(size);
      for (Index row = 0; row < tokens; ++row) {
        const double before = largest(row, head);
        for (Index key = 0; key < keys; ++key) {
          if (!is_ahead(row, first + static_cast<std::size_t>(key)))
            largest(row, head) = std::max(largest(row, head), scores(row, key));
        }
        Row<double> result = state.result.segment(row, head * size, size);
        if (sums(row, head) > 0 && largest(row, head) > before) {
          const double shrink = std::exp(before - largest(row, head));
          sums(row, head) *= shrink;
          result *= shrink;
        }
        for (Index key = 0; key < keys; ++key) {
          if (is_ahead(row, first + static_cast<std::size_t>(key))) continue;
          const double weight = std::exp(scores(row, key) - largest(row, head));
          sums(row, head) += weight;
          result += weight * block.segment(key, columns + of, size);
        }
      }
    }
  }
  for (Index row = 0; row < tokens; ++row) {
    for (Index head = 0; head < heads; ++head) state.result.segment(row, head * size, size) /= sums(row, head);
  }
  state.log_sums = largest + logarithm(std::move(sums));
  co_return state.result;
}

// The softmax is computed again from its sums, block by block. The gradients of a block follow it around the ring, one
// hop behind, and the last hop brings them home.
Task<CoreAttention::Gradients> CoreAttention::ring_backward(Real gradient, const State& state) const {
  const int members = context_.comm.size(Axis::cp), me = context_.comm.coordinate(Axis::cp);
  const Index size = context_.config.head_size, heads = state.query.cols() / size;
  const Index tokens = state.query.rows(), keys = state.key.rows(), columns = state.key.cols();
  Gradients result{Real(tokens, state.query.cols()), {}, {}};
  Real block = side_by_side(state.key, state.value);
  Real slopes = Real(keys, 2 * columns);  // of the block at hand
  for (int step = 0; step < members; ++step) {
    const int owner = (me + members - step) % members;
    if (step > 0) {
      block = co_await pass_on("cp.ring_key_value_backward", key_value_channel, owner, std::move(block));
      slopes = co_await pass_on("cp.ring_dkv", gradient_channel, owner, std::move(slopes));
    }
    const auto first = static_cast<std::size_t>(owner * keys);
    for (Index head = 0; head < heads; ++head) {
      const Index of = key_of(head);
      const Real query = columns_of(state.query, head * size, size);
      const Real from = columns_of(gradient, head * size, size);
      const Real key_block = columns_of(block, of, size);
      const Real scores = query * transposed(key_block) * scale_of(size);
      Real weights = Real(tokens, keys);
      for (Index row = 0; row < tokens; ++row) {
        for (Index key = 0; key < keys; ++key) {
          if (!is_ahead(row, first + static_cast<std::size_t>(key)))
            weights(row, key) = std::exp(scores(row, key) - state.log_sums(row, head));
        }
      }
      // Sum over all keys of a weight times its gradient, which is known without them (Dao et al., 2022).
      const Real along = row_dots(from, columns_of(state.result, head * size, size));
      Real inner = from * transposed(columns_of(block, columns + of, size));
      subtract_from_columns(inner, along);
      const Real of_scores = hadamard(std::move(inner), weights) * scale_of(size);
      result.query.add_to_columns(head * size, of_scores * key_block);
      slopes.add_to_columns(of, transposed(of_scores) * query);
      slopes.add_to_columns(columns + of, transposed(weights) * from);
    }
  }
  if (members > 1) slopes = co_await pass_on("cp.ring_dkv", gradient_channel, me, std::move(slopes));
  result.key = columns_of(slopes, 0, columns);
  result.value = columns_of(slopes, columns, columns);
  co_return result;
}

Task<Real> to_heads(Communicator& comm, const char* site, Axis axis, Real tensor) {
  const int members = comm.size(axis);
  if (members == 1) co_return tensor;
  const Index tokens = tensor.rows(), columns = tensor.cols() / members;
  Real packed(tokens * members, columns);
  for (int i = 0; i < members; ++i) packed.set_rows(i * tokens, columns_of(tensor, i * columns, columns));
  std::vector<int> rows(static_cast<std::size_t>(members), static_cast<int>(tokens)), received;
  co_return co_await comm.all_to_all(site, axis, std::move(packed), std::move(rows), received);
}

Task<Real> to_tokens(Communicator& comm, const char* site, Axis axis, Real tensor) {
  const int members = comm.size(axis);
  if (members == 1) co_return tensor;
  const Index tokens = tensor.rows() / members, columns = tensor.cols();
  std::vector<int> rows(static_cast<std::size_t>(members), static_cast<int>(tokens)), received;
  const Real packed = co_await comm.all_to_all(site, axis, std::move(tensor), std::move(rows), received);
  Real result(tokens, columns * members);
  for (int i = 0; i < members; ++i) result.set_columns(i * columns, rows_of(packed, i * tokens, tokens));
  co_return result;
}

}  // namespace lockstep::transformer
