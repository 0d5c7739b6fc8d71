// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <map>
#include <string>

namespace lockstep::transformer {

/// Tokens are rows, features are columns. Row-major, as the frameworks store tensors.
template <class Number>
using Matrix = Eigen::Matrix<Number, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Number>
using Column = Eigen::Matrix<Number, Eigen::Dynamic, 1>;

/// Parameters or gradients by name. A tensor of one dimension is a matrix of one row.
template <class Number>
using Tensors = std::map<std::string, Matrix<Number>>;

using Real = Matrix<double>;

}  // namespace lockstep::transformer
