// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sharded_mlp.h"

#include <cmath>

namespace lockstep::transformer {

namespace {

constexpr double half_root = 0.70710678118654752440;     // sqrt(1/2)
constexpr double density_at_0 = 0.39894228040143267794;  // 1 / sqrt(2 pi)

/// The normal distribution function.
double normal_below(double x) { return 0.5 * std::erfc(-x * half_root); }

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

Real activate(bool gated, const Real& inner) {
  if (!gated) return map(inner, [](double x) { return x * normal_below(x); });
  Real active(inner.rows(), inner.cols() / 2);
  for (Index i = 0; i < active.size(); ++i) {
    const double gate = inner(2 * i), up = inner(2 * i + 1);
    active(i) = gate * logistic(gate) * up;
  }
  return active;
}

Real activate_backward(bool gated, const Real& inner, const Real& gradient) {
  if (!gated) {
    const auto slope = [](double x) { return normal_below(x) + x * density_at_0 * std::exp(-0.5 * x * x); };
    return hadamard(map(inner, slope), gradient);
  }
  Real result(inner.rows(), inner.cols());
  for (Index i = 0; i < gradient.size(); ++i) {
    const double gate = inner(2 * i), up = inner(2 * i + 1), open = logistic(gate);
    result(2 * i) = gradient(i) * up * (open + gate * open * (1 - open));
    result(2 * i + 1) = gradient(i) * gate * open;
  }
  return result;
}

const TensorParallelRegion::Sites mlp_sites = {"mlp.copy_to_tp",       "mlp.reduce_from_tp",
                                               "mlp.gather_sequence",  "mlp.gather_sequence_backward",
                                               "mlp.scatter_sequence", "mlp.scatter_sequence_backward"};

Task<Real> ShardedMlp::forward(Real input, State& state) {
  state.input = co_await region_.enter(std::move(input));
  state.inner = state.input * transposed(context_.parameter(up_ + "weight"));
  if (context_.has(up_ + "bias")) add_to_rows(state.inner, context_.parameter(up_ + "bias"));
  state.active = activate(context_.config.swiglu, state.inner);
  Real partial = state.active * transposed(context_.parameter(down_ + "weight"));
  Real output = co_await region_.leave(std::move(partial));
  if (context_.has(down_ + "bias")) add_to_rows(output, context_.parameter(down_ + "bias"));
  co_return output;
}

Task<Real> ShardedMlp::backward(Real gradient, const State& state, LocalGradients& gradients) {
  const int rank = context_.comm.rank();
  if (context_.has(down_ + "bias")) add_gradient(gradients, down_ + "bias", rank, column_sums(gradient));
  const Real output = co_await region_.leave_backward(std::move(gradient));
  add_gradient(gradients, down_ + "weight", rank, transposed(output) * state.active);
  const Real active = output * context_.parameter(down_ + "weight");
  const Real inner = activate_backward(context_.config.swiglu, state.inner, active);
  add_gradient(gradients, up_ + "weight", rank, transposed(inner) * state.input);
  if (context_.has(up_ + "bias")) add_gradient(gradients, up_ + "bias", rank, column_sums(inner));
  Real input = inner * context_.parameter(up_ + "weight");
  co_return co_await region_.enter_backward(std::move(input));
}

}  // namespace lockstep::transformer
