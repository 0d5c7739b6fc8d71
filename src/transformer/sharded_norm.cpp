// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sharded_norm.h"

namespace lockstep::transformer {

Real norm_forward(const RankContext& context, const std::string& name, const Real& input, NormState& state) {
  constexpr double epsilon = 1e-5;
  const bool centred = context.config.layer_norm;
  state.normalized = input;
  if (centred) state.normalized.colwise() -= input.rowwise().mean();
  state.inverse =
      (state.normalized.rowwise().squaredNorm().array() / static_cast<double>(input.cols()) + epsilon).rsqrt();
  state.normalized.array().colwise() *= state.inverse;
  Real output = state.normalized * context.parameter(name + ".weight").row(0).asDiagonal();
  if (centred) output.rowwise() += context.parameter(name + ".bias").row(0);
  return output;
}

Real norm_backward(const RankContext& context, const std::string& name, const Real& gradient, const NormState& state,
                   LocalGradients& gradients) {
  const int rank = context.comm.rank();
  const Real products = gradient.cwiseProduct(state.normalized);
  add_gradient(gradients, name + ".weight", rank, products.colwise().sum());
  if (context.config.layer_norm) add_gradient(gradients, name + ".bias", rank, gradient.colwise().sum());
  const Real scaled = gradient * context.parameter(name + ".weight").row(0).asDiagonal();
  const Eigen::VectorXd along = scaled.cwiseProduct(state.normalized).rowwise().mean();
  Real result = scaled - along.asDiagonal() * state.normalized;
  if (context.config.layer_norm) result.colwise() -= scaled.rowwise().mean();
  result.array().colwise() *= state.inverse;
  return result;
}

namespace {

bool on_all_of_the_sequence(const char* site, const RankContext& context) {
  return context.sequence_parallel && context.comm.drops(site);
}

Real own_slice(const RankContext& context, const Real& whole) {
  const Eigen::Index rows = whole.rows() / context.comm.size(Axis::tp);
  return whole.middleRows(context.comm.coordinate(Axis::tp) * rows, rows);
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
