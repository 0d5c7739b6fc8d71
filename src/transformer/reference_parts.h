// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <utility>

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
    Matrix<Number> output = input * context_.parameter(weight_).transpose();
    if (context_.has(bias_)) output.rowwise() += context_.parameter(bias_).row(0);
    return output;
  }
  Matrix<Number> backward(const Matrix<Number>& output_gradient) {
    context_.gradient(weight_) += output_gradient.transpose() * input_;
    if (context_.has(bias_)) context_.gradient(bias_) += output_gradient.colwise().sum();
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
    const Eigen::Index size = input.cols();
    normalized_ = input;
    inverse_.resize(input.rows());
    for (Eigen::Index token = 0; token < input.rows(); ++token) {
      auto row = normalized_.row(token);
      if (context_.config.layer_norm) {
        const Number mean = row.sum() / Number(static_cast<double>(size));
        for (Eigen::Index i = 0; i < size; ++i) row(i) -= mean;
      }
      const Number mean_square = row.dot(row) / Number(static_cast<double>(size));
      inverse_(token) = Number(1) / sqrt(mean_square + Number(epsilon));
      row *= inverse_(token);
    }
    Matrix<Number> output = normalized_;
    for (Eigen::Index token = 0; token < output.rows(); ++token)
      output.row(token) = output.row(token).cwiseProduct(context_.parameter(name_ + ".weight").row(0));
    if (context_.config.layer_norm) output.rowwise() += context_.parameter(name_ + ".bias").row(0);
    return output;
  }

  Matrix<Number> backward(const Matrix<Number>& output_gradient) {
    const Number size(static_cast<double>(output_gradient.cols()));
    Matrix<Number> input_gradient(output_gradient.rows(), output_gradient.cols());
    for (Eigen::Index token = 0; token < output_gradient.rows(); ++token) {
      const auto normalized = normalized_.row(token);
      context_.gradient(name_ + ".weight").row(0) += output_gradient.row(token).cwiseProduct(normalized);
      auto row = input_gradient.row(token);
      row = output_gradient.row(token).cwiseProduct(context_.parameter(name_ + ".weight").row(0));
      const Number along = row.dot(normalized) / size;
      const Number mean = context_.config.layer_norm ? Number(row.sum() / size) : Number(0);
      for (Eigen::Index i = 0; i < row.size(); ++i) row(i) = inverse_(token) * (row(i) - mean - normalized(i) * along);
    }
    if (context_.config.layer_norm) context_.gradient(name_ + ".bias") += output_gradient.colwise().sum();
    return input_gradient;
  }

 private:
  Context<Number>& context_;
  std::string name_;
  Matrix<Number> normalized_;
  Column<Number> inverse_;
};

}  // namespace lockstep::transformer::reference
