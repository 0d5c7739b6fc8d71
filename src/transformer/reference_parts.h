// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "src/base/at.h"
#include "src/transformer/config.h"
#include "src/transformer/matrix.h"
#include "src/transformer/perturbed.h"
#include "src/transformer/reference.h"

/// The layers of the single-device reference. Each keeps from its forward what its backward needs, and its backward
/// adds to the gradients. Number is double, long double or Perturbed.
namespace lockstep::transformer::reference {

template <class Number>
struct Context {
  const Config& config;
  const Tensors<Number>& parameters;
  Tensors<Number>& gradients;
  const Sequence& sequence;

  const Matrix<Number>& parameter(const std::string& name) const { return parameters.at(name); }
  Matrix<Number>& gradient(const std::string& name) const { return gradients.at(name); }
  bool has(const std::string& name) const { return parameters.count(name) > 0; }
};

/// y = x W^T + b, the bias only where there is one.
template <class Number>
class Linear {
 public:
  Linear(Context<Number>& context, std::string weight, std::string bias = "")
      : context_(context), weight_(std::move(weight)), bias_(std::move(bias)) {}

  Matrix<Number> forward(const Matrix<Number>& input) {
    input_ = input;
    Matrix<Number> output = input * transposed(context_.parameter(weight_));
    if (context_.has(bias_)) add_to_rows(output, context_.parameter(bias_));
    return output;
  }
  Matrix<Number> backward(const Matrix<Number>& output_gradient) {
    context_.gradient(weight_) += transposed(output_gradient) * input_;
    if (context_.has(bias_)) context_.gradient(bias_) += column_sums(output_gradient);
    return output_gradient * context_.parameter(weight_);
  }

 private:
  Context<Number>& context_;
  std::string weight_, bias_;
  Matrix<Number> input_;
};

/// LayerNorm, or RMSNorm where the configuration says so.
template <class Number>
class Norm {
 public:
  static constexpr double epsilon = 1e-5;

  Norm(Context<Number>& context, std::string name) : context_(context), name_(std::move(name)) {}

  Matrix<Number> forward(const Matrix<Number>& input) {
    using std::sqrt;
    const Index size = input.cols();
    normalized_ = input;
    inverse_.resize(static_cast<std::size_t>(input.rows()));
    for (Index token = 0; token < input.rows(); ++token) {
      Row<Number> row = normalized_.row(token);
      if (context_.config.layer_norm) {
        const Number mean = sum<Number>(row) / Number(static_cast<double>(size));
        for (Number& element : row) element -= mean;
      }
      const Number mean_square = dot<Number>(row, row) / Number(static_cast<double>(size));
      const Number inverse = Number(1) / sqrt(mean_square + Number(epsilon));
      inverse_[at(token)] = inverse;
      row *= inverse;
    }
    Matrix<Number> output = normalized_;
    const Matrix<Number>& weight = context_.parameter(name_ + ".weight");
    for (Index token = 0; token < output.rows(); ++token) {
      for (Index i = 0; i < size; ++i) output(token, i) *= weight(i);
    }
    if (context_.config.layer_norm) add_to_rows(output, context_.parameter(name_ + ".bias"));
    return output;
  }

  Matrix<Number> backward(const Matrix<Number>& output_gradient) {
    const Number size(static_cast<double>(output_gradient.cols()));
    Matrix<Number> input_gradient(output_gradient.rows(), output_gradient.cols());
    const Matrix<Number>& weight = context_.parameter(name_ + ".weight");
    Matrix<Number>& weight_gradient = context_.gradient(name_ + ".weight");
    for (Index token = 0; token < output_gradient.rows(); ++token) {
      const ConstRow<Number> normalized = std::as_const(normalized_).row(token);
      Row<Number> row = input_gradient.row(token);
      for (Index i = 0; i < row.size(); ++i) {
        weight_gradient(i) += output_gradient(token, i) * normalized(i);
        row(i) = output_gradient(token, i) * weight(i);
      }
      const Number along = dot<Number>(row, normalized) / size;
      const Number mean = context_.config.layer_norm ? sum<Number>(row) / size : Number(0);
      const Number inverse = inverse_[at(token)];
      for (Index i = 0; i < row.size(); ++i) row(i) = inverse * (row(i) - mean - normalized(i) * along);
    }
    if (context_.config.layer_norm) context_.gradient(name_ + ".bias") += column_sums(output_gradient);
    return input_gradient;
  }

 private:
  Context<Number>& context_;
  std::string name_;
  Matrix<Number> normalized_;
  std::vector<Number> inverse_;  ///< by token
};

}  // namespace lockstep::transformer::reference
