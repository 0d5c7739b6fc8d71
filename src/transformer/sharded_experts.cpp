// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sharded_experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/base/at.h"

namespace lockstep::transformer {

namespace {

constexpr TensorParallelRegion::Sites shared_sites = {
    "shared_experts.copy_to_tp",       "shared_experts.reduce_from_tp",
    "shared_experts.gather_sequence",  "shared_experts.gather_sequence_backward",
    "shared_experts.scatter_sequence", "shared_experts.scatter_sequence_backward"};

}  // namespace

ShardedExperts::ShardedExperts(RankContext& context, const std::string& prefix)
    : context_(context), name_(prefix), local_experts_(context.config.experts / context.comm.size(Axis::ep)) {
  if (context.config.shared_expert_ffn > 0) shared_.emplace(context, prefix + "shared_experts.", shared_sites);
}

std::string ShardedExperts::weight(const char* linear, int expert) const {
  return name_ + "experts." + linear + ".weight" + std::to_string(expert);
}

void ShardedExperts::route(State& state) const {
  const Config& config = context_.config;
  const Real logits = state.input * transposed(context_.parameter(name_ + "router.weight"));
  state.spread = Real(logits.rows(), logits.cols());
  state.chosen = Real(logits.rows(), logits.cols());
  state.sent.clear();
  for (Index token = 0; token < logits.rows(); ++token) {
    std::vector<int> order(static_cast<std::size_t>(config.experts));
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + config.top_k, order.end(),
                      [&](int a, int b) { return logits(token, a) > logits(token, b); });
    const double largest = logits(token, order.front());
    double sum = 0;
    for (int i = 0; i < config.experts; ++i) {
      const int expert = order[at(i)];
      const bool is_chosen = i < config.top_k;
      if (is_chosen || config.pre_softmax) state.spread(token, expert) = std::exp(logits(token, expert) - largest);
      sum += state.spread(token, expert);
      if (!is_chosen) continue;
      state.chosen(token, expert) = 1;
      state.sent.push_back({token, expert});
    }
    state.spread.row(token) /= sum;
  }
  if (config.auxiliary_loss > 0) {
    state.probabilities = logits;
    subtract_from_columns(state.probabilities, row_maxima(logits));
    state.probabilities = exponential(std::move(state.probabilities));
    const Real sums = row_sums(state.probabilities);
    for (Index token = 0; token < logits.rows(); ++token) state.probabilities.row(token) /= sums(token);
  }
  // By expert, and so by the rank that holds it.
  std::stable_sort(state.sent.begin(), state.sent.end(),
                   [](const State::Row& a, const State::Row& b) { return a.expert < b.expert; });
  if (config.capacity_factor > 0) drop(state);
  state.sent_rows.assign(static_cast<std::size_t>(context_.comm.size(Axis::ep)), 0);
  for (const State::Row& row : state.sent) ++state.sent_rows[at(row.expert / local_experts_)];
}

// The tokens of a sequence are those of all tensor (in parts), context and sequence parallel ranks.
Task<> ShardedExperts::balance(State& state) const {
  Communicator& comm = context_.comm;
  Real counts = column_sums(state.chosen);
  double choices = sum<double>(counts.row(0));
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::sp}) {
    if (comm.size(axis) == 1 || (axis == Axis::tp && !context_.sequence_parallel)) continue;
    counts = co_await comm.all_reduce("moe.reduce_load", axis, std::move(counts));
    choices *= comm.size(axis);
  }
  state.load = counts * (context_.config.auxiliary_loss * context_.config.experts / choices);
}

// As Megatron does, each rank looks at its own tokens alone.
void ShardedExperts::drop(State& state) const {
  const Config& config = context_.config;
  const double choices = static_cast<double>(state.input.rows()) * config.top_k;
  const double all = static_cast<double>(state.sent.size());
  const auto capacity =
      static_cast<std::ptrdiff_t>(std::min(std::ceil(choices / config.experts * config.capacity_factor), all));
  std::vector<State::Row> kept;
  for (auto first = state.sent.begin(); first != state.sent.end();) {
    const auto last =
        std::find_if(first, state.sent.end(), [&](const State::Row& row) { return row.expert != first->expert; });
    if (!config.drop_by_position) {
      std::stable_sort(first, last, [&](const State::Row& a, const State::Row& b) {
        return state.spread(a.token, a.expert) > state.spread(b.token, b.expert);
      });
    }
    kept.insert(kept.end(), first, first + std::min(capacity, last - first));
    first = last;
  }
  state.sent = std::move(kept);
}

Task<Real> ShardedExperts::dispatch(const char* to_experts, const char* to_pieces, Real rows, State& state) const {
  Real arrived =
      co_await context_.comm.all_to_all(to_experts, Axis::ep, std::move(rows), state.sent_rows, state.received_rows);
  const int pieces = context_.comm.size(Axis::etp);
  std::vector<int> counts(static_cast<std::size_t>(pieces), static_cast<int>(arrived.rows()));
  Real copies = repeated(arrived, pieces);  // one for each member, which the all-to-all then gives to all of them
  co_return co_await context_.comm.all_to_all(to_pieces, Axis::etp, std::move(copies), std::move(counts),
                                              state.shared_rows);
}

// The way of the tokens once more, for gradients.
Task<Real> ShardedExperts::dispatch_again(const char* to_experts, const char* to_pieces, Real rows,
                                          const State& state) const {
  State way;
  way.sent_rows = state.sent_rows;
  Real arrived = co_await dispatch(to_experts, to_pieces, std::move(rows), way);
  context_.comm.expect_rows(to_experts, way.received_rows, state.received_rows);
  context_.comm.expect_rows(to_pieces, way.shared_rows, state.shared_rows);
  co_return arrived;
}

Task<Real> ShardedExperts::give_back(const char* from_pieces, const char* from_experts, Real results,
                                     const State& state) const {
  std::vector<int> received;
  const Real parts =
      co_await context_.comm.all_to_all(from_pieces, Axis::etp, std::move(results), state.shared_rows, received);
  const int pieces = context_.comm.size(Axis::etp);
  const int arrived = std::accumulate(state.received_rows.begin(), state.received_rows.end(), 0);
  context_.comm.expect_rows(from_pieces, received, std::vector<int>(static_cast<std::size_t>(pieces), arrived));
  Real whole = rows_of(parts, 0, parts.rows() / pieces);
  for (int i = 1; i < pieces; ++i) whole += rows_of(parts, i * whole.rows(), whole.rows());
  Real back =
      co_await context_.comm.all_to_all(from_experts, Axis::ep, std::move(whole), state.received_rows, received);
  context_.comm.expect_rows(from_experts, received, state.sent_rows);
  co_return back;
}

Real ShardedExperts::compute(State& state) const {
  const Index hidden = context_.config.hidden;
  state.rows_of.assign(static_cast<std::size_t>(local_experts_), {});
  for (Index row = 0; row < state.arrived.rows(); ++row) {
    const int expert = static_cast<int>(state.arrived(row, hidden)) % local_experts_;
    state.rows_of[at(expert)].push_back(row);
  }
  Real results = Real(state.arrived.rows(), hidden);
  const Real features = columns_of(state.arrived, 0, hidden);
  state.inner.clear();
  state.active.clear();
  for (int expert = 0; expert < local_experts_; ++expert) {
    const auto& rows = state.rows_of[at(expert)];
    const Real tokens = rows_at(features, rows);
    state.inner.push_back(tokens * transposed(context_.parameter(weight("linear_fc1", expert))));
    state.active.push_back(activate(context_.config.swiglu, state.inner.back()));
    results.set_rows(rows, state.active.back() * transposed(context_.parameter(weight("linear_fc2", expert))));
  }
  return results;
}

Real ShardedExperts::compute_backward(const Real& gradient, const State& state, LocalGradients& gradients) const {
  const Index hidden = context_.config.hidden;
  Real result = Real(gradient.rows(), hidden);
  const Real features = columns_of(state.arrived, 0, hidden);
  for (int expert = 0; expert < local_experts_; ++expert) {
    const auto place = static_cast<std::size_t>(expert);
    const auto& rows = state.rows_of[place];
    const Real output = rows_at(gradient, rows);
    const Real inner = activate_backward(context_.config.swiglu, state.inner[place],
                                         output * context_.parameter(weight("linear_fc2", expert)));
    result.set_rows(rows, inner * context_.parameter(weight("linear_fc1", expert)));
    // Apart for each rank whose tokens they are: that is how a contribution is named.
    std::map<int, std::vector<Index>> by_source;
    for (std::size_t i = 0; i < rows.size(); ++i)
      by_source[static_cast<int>(state.arrived(rows[i], hidden + 1))].push_back(static_cast<Index>(i));
    for (const auto& [source, of_source] : by_source) {
      std::vector<Index> arrived;
      for (const Index i : of_source) arrived.push_back(rows[at(i)]);
      const Real tokens = rows_at(features, arrived);
      const Real active = rows_at(state.active[place], of_source);
      const Real down = rows_at(output, of_source), up = rows_at(inner, of_source);
      add_gradient(gradients, weight("linear_fc2", expert), source, transposed(down) * active);
      add_gradient(gradients, weight("linear_fc1", expert), source, transposed(up) * tokens);
    }
  }
  return result;
}

Task<Real> ShardedExperts::forward(Real input, State& state) {
  const Index hidden = context_.config.hidden;
  state.input = input;
  route(state);
  if (context_.config.auxiliary_loss > 0) co_await balance(state);
  Real rows(static_cast<Index>(state.sent.size()), hidden + 2);
  for (std::size_t i = 0; i < state.sent.size(); ++i) {
    const auto row = static_cast<Index>(i);
    rows.segment(row, 0, hidden) = input.row(state.sent[i].token);
    rows(row, hidden) = state.sent[i].expert;
    rows(row, hidden + 1) = context_.comm.rank();
  }
  state.arrived = co_await dispatch("moe.dispatch", "moe.gather_from_etp", std::move(rows), state);
  Real results = compute(state);
  state.results = co_await give_back("moe.reduce_to_etp", "moe.combine", std::move(results), state);
  Real output = Real(input.rows(), hidden);
  for (std::size_t i = 0; i < state.sent.size(); ++i) {
    const auto [token, expert] = state.sent[i];
    output.row(token) += state.spread(token, expert) * state.results.row(static_cast<Index>(i));
  }
  if (!shared_) co_return output;
  state.shared_result = co_await shared_->forward(std::move(input), state.shared);
  state.gate = Real(output.rows(), 1, 1.0);
  if (context_.config.shared_expert_gate) {
    const Real scores = state.input * transposed(context_.parameter(name_ + "shared_experts.gate_weight"));
    state.gate = map(exponential(scores * -1), [](double x) { return 1 / (1 + x); });
  }
  co_return output + scale_rows(state.shared_result, state.gate);
}

Task<Real> ShardedExperts::backward(Real gradient, const State& state, Real auxiliary, LocalGradients& gradients) {
  const Config& config = context_.config;
  Real rows(static_cast<Index>(state.sent.size()), config.hidden);
  Real slopes = Real(gradient.rows(), config.experts);
  for (std::size_t i = 0; i < state.sent.size(); ++i) {
    const auto [token, expert] = state.sent[i];
    const auto row = static_cast<Index>(i);
    rows.row(row) = state.spread(token, expert) * gradient.row(token);
    slopes(token, expert) = dot<double>(gradient.row(token), state.results.row(row));
  }
  const Real arrived =
      co_await dispatch_again("moe.combine_backward", "moe.reduce_to_etp_backward", std::move(rows), state);
  Real inner = compute_backward(arrived, state, gradients);
  const Real back =
      co_await give_back("moe.gather_from_etp_backward", "moe.dispatch_backward", std::move(inner), state);
  subtract_from_columns(slopes, row_dots(slopes, state.spread));
  Real logits = hadamard(slopes, state.spread);
  if (config.auxiliary_loss > 0) {
    const Real mean = state.probabilities * transposed(state.load);
    for (Index token = 0; token < logits.rows(); ++token) {
      for (Index expert = 0; expert < logits.cols(); ++expert)
        logits(token, expert) +=
            auxiliary(token) * (state.probabilities(token, expert) * (state.load(expert) - mean(token)));
    }
  }
  add_gradient(gradients, name_ + "router.weight", context_.comm.rank(), transposed(logits) * state.input);
  Real input = logits * context_.parameter(name_ + "router.weight");
  for (std::size_t i = 0; i < state.sent.size(); ++i) input.row(state.sent[i].token) += back.row(static_cast<Index>(i));
  if (shared_) input += co_await shared_backward(std::move(gradient), state, gradients);
  co_return input;
}

Task<Real> ShardedExperts::shared_backward(Real gradient, const State& state, LocalGradients& gradients) {
  Real scaled = scale_rows(gradient, state.gate);
  Real input = co_await shared_->backward(std::move(scaled), state.shared, gradients);
  if (!context_.config.shared_expert_gate) co_return input;
  const std::string gate = name_ + "shared_experts.gate_weight";
  Real slopes = row_dots(gradient, state.shared_result);
  for (Index token = 0; token < slopes.rows(); ++token) slopes(token) *= state.gate(token) * (1 - state.gate(token));
  add_gradient(gradients, gate, context_.comm.rank(), transposed(slopes) * state.input);
  co_return input + slopes* context_.parameter(gate);
}

}  // namespace lockstep::transformer
