// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sharded_norm.h"

#include <cmath>

namespace lockstep::transformer {

Real norm_forward(const RankContext& context, const std::string& name, const Real& input, NormState& state) {
  constexpr double epsilon = 1e-5;
  const bool centred = context.config.layer_norm;
  state.normalized = input;
  if (centred) subtract_from_columns(state.normalized, row_means(input));
  const auto size = static_cast<double>(input.cols());
  state.inverse = map(row_dots(state.normalized, state.normalized),
                      [&](double squares) { return 1 / std::sqrt(squares / size + epsilon); });
  state.normalized = scale_rows(std::move(state.normalized), state.inverse);
  Real output = scale_columns(state.normalized, context.parameter(name + ".weight"));
  if (centred) add_to_rows(output, context.parameter(name + ".bias"));
  return output;
}

Real norm_backward(const RankContext& context, const std::string& name, const Real& gradient, const NormState& state,
                   LocalGradients& gradients) {
  const int rank = context.comm.rank();
  add_gradient(gradients, name + ".weight", rank, column_sums(hadamard(gradient, state.normalized)));
  if (context.config.layer_norm) add_gradient(gradients, name + ".bias", rank, column_sums(gradient));
  const Real scaled = scale_columns(gradient, context.parameter(name + ".weight"));
  const Real along = row_means(hadamard(scaled, state.normalized));
  Real result = scaled - scale_rows(state.normalized, along);
  if (context.config.layer_norm) subtract_from_columns(result, row_means(scaled));
  return scale_rows(std::move(result), state.inverse);
}

namespace {

bool on_all_of_the_sequence(const char* site, const RankContext& context) {
  return context.sequence_parallel && context.comm.drops(site);
}

Real own_slice(const RankContext& context, const Real& whole) {
  const Index rows = whole.rows() / context.comm.size(Axis::tp);
  return rows_of(whole, context.comm.coordinate(Axis::tp) * rows, rows);
}

}  // namespace

Task<Real> norm_forward_at(const char* site, const RankContext& context, const std::string& name, Real input,
                           NormState& state) {
  if (!on_all_of_the_sequence(site, context)) co_return norm_forward(context, name, input, state);
  const Real whole = co_await context.comm.gather_whole(site, Axis::tp, std::move(input));
  co_return own_slice(context, norm_forward(context, name, whole, state));
}

Task<Real> norm_backward_at(const char* site, const RankContext& context, const std::string& name, Real gradient,
                            const NormState& state, LocalGradients& gradients) {
  if (!on_all_of_the_sequence(site, context)) co_return norm_backward(context, name, gradient, state, gradients);
  const Real whole = co_await context.comm.gather_whole(site, Axis::tp, std::move(gradient));
  co_return own_slice(context, norm_backward(context, name, whole, state, gradients));
}

}  // namespace lockstep::transformer
