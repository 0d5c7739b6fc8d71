// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sharded_mlp.h"

#include <cmath>

namespace lockstep::transformer {

namespace {

constexpr double half_root = 0.70710678118654752440;     // sqrt(1/2)
constexpr double density_at_0 = 0.39894228040143267794;  // 1 / sqrt(2 pi)

/// The normal distribution function.
double normal_below(double x) { return 0.5 * std::erfc(-x * half_root); }

using Columns = Eigen::Map<const Real, 0, Eigen::Stride<Eigen::Dynamic, 2>>;
/// Every second column, from `first` on.
Columns every_second(const Real& tensor, Eigen::Index first) {
  return {tensor.data() + first, tensor.rows(), tensor.cols() / 2, Eigen::Stride<Eigen::Dynamic, 2>(tensor.cols(), 2)};
}

Eigen::ArrayXXd logistic(const Real& x) { return 1 / (1 + (-x.array()).exp()); }

}  // namespace

Real activate(bool gated, const Real& inner) {
  if (!gated) return inner.unaryExpr([](double x) { return x * normal_below(x); });
  if (inner.size() == 0) return Real(inner.rows(), inner.cols() / 2);  // no tokens, no address to begin at
  const Real gate = every_second(inner, 0);
  return gate.array() * logistic(gate) * every_second(inner, 1).array();
}

Real activate_backward(bool gated, const Real& inner, const Real& gradient) {
  if (!gated) {
    const auto slope = [](double x) { return normal_below(x) + x * density_at_0 * std::exp(-0.5 * x * x); };
    return inner.unaryExpr(slope).cwiseProduct(gradient);
  }
  if (inner.size() == 0) return inner;
  const Real gate = every_second(inner, 0);
  const Eigen::ArrayXXd open = logistic(gate);
  const Real of_gate = gradient.array() * every_second(inner, 1).array() * (open + gate.array() * open * (1 - open));
  const Real of_up = gradient.array() * gate.array() * open;
  Real result(inner.rows(), inner.cols());
  for (Eigen::Index i = 0; i < of_gate.cols(); ++i) {
    result.col(2 * i) = of_gate.col(i);
    result.col(2 * i + 1) = of_up.col(i);
  }
  return result;
}

const TensorParallelRegion::Sites mlp_sites = {"mlp.copy_to_tp",       "mlp.reduce_from_tp",
                                               "mlp.gather_sequence",  "mlp.gather_sequence_backward",
                                               "mlp.scatter_sequence", "mlp.scatter_sequence_backward"};

Task<Real> ShardedMlp::forward(Real input, State& state) {
  state.input = co_await region_.enter(std::move(input));
  state.inner = state.input * context_.parameter(up_ + "weight").transpose();
  if (context_.has(up_ + "bias")) state.inner.rowwise() += context_.parameter(up_ + "bias").row(0);
  state.active = activate(context_.config.swiglu, state.inner);
  Real partial = state.active * context_.parameter(down_ + "weight").transpose();
  Real output = co_await region_.leave(std::move(partial));
  if (context_.has(down_ + "bias")) output.rowwise() += context_.parameter(down_ + "bias").row(0);
  co_return output;
}

Task<Real> ShardedMlp::backward(Real gradient, const State& state, LocalGradients& gradients) {
  const int rank = context_.comm.rank();
  if (context_.has(down_ + "bias")) add_gradient(gradients, down_ + "bias", rank, gradient.colwise().sum());
  const Real output = co_await region_.leave_backward(std::move(gradient));
  add_gradient(gradients, down_ + "weight", rank, output.transpose() * state.active);
  const Real active = output * context_.parameter(down_ + "weight");
  const Real inner = activate_backward(context_.config.swiglu, state.inner, active);
  add_gradient(gradients, up_ + "weight", rank, inner.transpose() * state.input);
  if (context_.has(up_ + "bias")) add_gradient(gradients, up_ + "bias", rank, inner.colwise().sum());
  Real input = inner * context_.parameter(up_ + "weight");
  co_return co_await region_.enter_backward(std::move(input));
}

}  // namespace lockstep::transformer
