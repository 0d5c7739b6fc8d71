// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "src/transformer/reference_parts.h"

namespace lockstep::transformer::reference {

/// x times the normal distribution function at x (GELU), and its derivative.
template <class Number>
Number gelu(const Number& x) {
  using std::erf;
  return Number(0.5) * x * (Number(1) + erf(x * Number(0.70710678118654752)));
}
template <class Number>
Number gelu_slope(const Number& x) {
  using std::erf;
  using std::exp;
  return Number(0.5) * (Number(1) + erf(x * Number(0.70710678118654752))) +
         x * Number(0.39894228040143268) * exp(Number(-0.5) * x * x);
}
template <class Number>
Number sigmoid(const Number& x) {
  using std::exp;
  return Number(1) / (Number(1) + exp(-x));
}

/// Two linears with GELU or SwiGLU between them: a dense MLP, an expert, or the shared experts.
template <class Number>
class Mlp {
 public:
  /// `suffix` follows "weight": the number of an expert.
  Mlp(Context<Number>& context, const std::string& prefix, const std::string& suffix = "")
      : context_(context),
        up_(context, prefix + "linear_fc1.weight" + suffix, prefix + "linear_fc1.bias" + suffix),
        down_(context, prefix + "linear_fc2.weight" + suffix, prefix + "linear_fc2.bias" + suffix) {}

  Matrix<Number> forward(const Matrix<Number>& input) {
    inner_ = up_.forward(input);
    if (!context_.config.swiglu) {
      Matrix<Number> active = inner_;
      for (Index i = 0; i < active.size(); ++i) active(i) = gelu(inner_(i));
      return down_.forward(active);
    }
    Matrix<Number> active(inner_.rows(), inner_.cols() / 2);
    for (Index token = 0; token < active.rows(); ++token) {
      for (Index i = 0; i < active.cols(); ++i) {
        const Number& gate = inner_(token, 2 * i);
        active(token, i) = gate * sigmoid(gate) * inner_(token, 2 * i + 1);
      }
    }
    return down_.forward(active);
  }

  Matrix<Number> backward(const Matrix<Number>& output_gradient) {
    const Matrix<Number> active = down_.backward(output_gradient);
    Matrix<Number> gradient(inner_.rows(), inner_.cols());
    if (!context_.config.swiglu) {
      for (Index i = 0; i < gradient.size(); ++i) gradient(i) = active(i) * gelu_slope(inner_(i));
      return up_.backward(gradient);
    }
    for (Index token = 0; token < active.rows(); ++token) {
      for (Index i = 0; i < active.cols(); ++i) {
        const Number& gate = inner_(token, 2 * i);
        const Number open = sigmoid(gate);
        gradient(token, 2 * i + 1) = active(token, i) * gate * open;
        gradient(token, 2 * i) =
            active(token, i) * inner_(token, 2 * i + 1) * open * (Number(1) + gate * (Number(1) - open));
      }
    }
    return up_.backward(gradient);
  }

 private:
  Context<Number>& context_;
  Linear<Number> up_, down_;
  Matrix<Number> inner_;
};

}  // namespace lockstep::transformer::reference
