// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sharded_ends.h"

namespace lockstep::transformer {

namespace {

const std::string output_layer = "output_layer.weight";

constexpr TensorParallelRegion::Sites head_sites = {"head.copy_to_tp",       "head.reduce_from_tp",
                                                    "head.gather_sequence",  "head.gather_sequence_backward",
                                                    "head.scatter_sequence", "head.scatter_sequence_backward"};

/// The row of the rank's part of the vocabulary, or -1.
Index local_row(const Home& home, int token) {
  const std::int64_t row = token - home.row;
  return row >= 0 && row < home.rows ? row : -1;
}

/// This rank's slice of the sequence.
Real slice(const Communicator& comm, const Real& tensor) {
  const Index rows = tensor.rows() / comm.size(Axis::tp);
  return rows_of(tensor, comm.coordinate(Axis::tp) * rows, rows);
}

}  // namespace

Task<Real> ShardedEmbedding::forward(std::vector<int> tokens, const std::vector<int>& positions) const {
  const Home& home = context_.homes.at(words_);
  Real output = Real(static_cast<Index>(tokens.size()), context_.config.hidden);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Index row = local_row(home, tokens[i]);
    if (row >= 0) output.row(static_cast<Index>(i)) = context_.parameter(words_).row(row);
  }
  // Without positions to add, the reduction can scatter along the sequence at once.
  if (context_.sequence_parallel && !context_.config.learned_positions)
    co_return co_await context_.comm.reduce_scatter("embedding.reduce_scatter", Axis::tp, std::move(output));
  output = co_await context_.comm.all_reduce("embedding.reduce", Axis::tp, std::move(output));
  if (context_.config.learned_positions) {
    for (std::size_t i = 0; i < positions.size(); ++i)
      output.row(static_cast<Index>(i)) += context_.parameter(learned_).row(positions[i]);
  }
  co_return context_.sequence_parallel ? slice(context_.comm, output) : output;
}

Task<Real> ShardedEmbedding::backward(Real gradient, std::vector<int> tokens, const std::vector<int>& positions,
                                      LocalGradients& gradients) const {
  const int rank = context_.comm.rank();
  if (context_.sequence_parallel)
    gradient = co_await context_.comm.all_gather("embedding.scatter_backward", Axis::tp, std::move(gradient));
  if (context_.config.learned_positions) {
    Real of_positions = Real(context_.parameter(learned_).rows(), gradient.cols());
    for (std::size_t i = 0; i < positions.size(); ++i)
      of_positions.row(positions[i]) += gradient.row(static_cast<Index>(i));
    add_gradient(gradients, learned_, rank, of_positions);
  }
  const Home& home = context_.homes.at(words_);
  Real of_words = Real(home.rows, home.columns);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Index row = local_row(home, tokens[i]);
    if (row >= 0) of_words.row(row) += gradient.row(static_cast<Index>(i));
  }
  add_gradient(gradients, words_, rank, of_words);
  co_return Real();
}

ShardedHead::ShardedHead(RankContext& context) : context_(context) {}

Task<> ShardedHead::forward(Real input, std::vector<int> targets, State& state) const {
  TensorParallelRegion region(context_, head_sites);
  Home home = context_.homes.at(output_layer);
  state.input = co_await region.enter(std::move(input));
  Real logits = state.input * transposed(context_.parameter(output_layer));
  const Index own = logits.cols();
  const bool gathered = context_.comm.size(Axis::tp) > 1 && context_.comm.drops("cross_entropy.logits");
  if (gathered) {
    // The loss takes what it gets for a part of a vocabulary that is larger by tp.
    const Real rows = co_await context_.comm.gather_whole("cross_entropy.logits", Axis::tp, transpose(logits));
    logits = transpose(rows);
    home.rows = logits.cols();
    home.row = context_.comm.coordinate(Axis::tp) * home.rows;
  }
  const Real largest = co_await context_.comm.all_reduce_max("cross_entropy.max", Axis::tp, row_maxima(logits));
  subtract_from_columns(logits, largest);
  state.gradient = exponential(std::move(logits));
  const Real sums = co_await context_.comm.all_reduce("cross_entropy.sum", Axis::tp, row_sums(state.gradient));
  state.gradient = scale_rows(std::move(state.gradient), map(sums, [](double sum) { return 1 / sum; }));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Index row = local_row(home, targets[i]);
    if (row >= 0) state.gradient(static_cast<Index>(i), row) -= 1;
  }
  // The backward of the gather cuts the own part out.
  if (gathered) state.gradient = columns_of(state.gradient, context_.comm.coordinate(Axis::tp) * own, own);
}

Task<Real> ShardedHead::backward(const Real& weights, const State& state, LocalGradients& gradients) const {
  TensorParallelRegion region(context_, head_sites);
  const Real logits = scale_rows(state.gradient, weights);
  add_gradient(gradients, output_layer, context_.comm.rank(), transposed(logits) * state.input);
  Real input = logits * context_.parameter(output_layer);
  co_return co_await region.enter_backward(std::move(input));
}

}  // namespace lockstep::transformer
