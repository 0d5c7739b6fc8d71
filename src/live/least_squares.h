// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <vector>

#include "src/live/columns.h"

namespace lockstep::live {

/// What is to be explained: a result as a sum of columns.
struct Problem {
  std::vector<const Column*> columns;
  Eigen::VectorXd result;
  Dtype result_dtype = Dtype::float32;
  Dtype coarsest = Dtype::float32;  ///< of the result, the columns and the reductions
  double elements = 1;              ///< of the piece
  /// Roundings of an element besides those of the additions: a cast, a division, the way to the optimizer and back.
  double roundings = 4;
};

/// Columns that enter with one factor, each times its weight.
struct Group {
  struct Share {
    std::size_t column = 0;
    Rational weight{1};
    double rounded = 1;  ///< the weight
  };
  std::vector<Share> shares;
};
using Design = std::vector<Group>;

/// The factors of a design for which the sum comes nearest to the result, with what rounding lets be known of them.
struct Fit {
  bool solved = false;                               ///< the groups can be told apart at all
  Eigen::VectorXd factors, errors;                   ///< by group; standard deviations
  Eigen::VectorXd coefficients, coefficient_errors;  ///< by column
  Eigen::VectorXd prediction;
  double limit = 0;                ///< how many errors a factor may be off
  double residual = 0;             ///< of the result that is left, unbiased: relative to the result
  double noise = 0;                ///< how much of it rounding may leave: relative to the result
  bool explained = false;          ///< the residual is no more than that
  int equations = 0, freedom = 0;  ///< equations that are not empty, and more of them than groups
  Eigen::VectorXd variances;       ///< by sum: of the result's noise
};

/// Solves designs over one problem. Keeps a pointer to the problem.
class LeastSquares {
 public:
  explicit LeastSquares(const Problem& problem);
  Fit fit(const Design& design) const;
  int equations() const { return equations_; }
  /// Norm of the result.
  double size() const { return size_; }
  /// How far two predictions are apart in units of the noise: the sum of squares over the sums.
  static double distance(const Fit& reference, const Eigen::VectorXd& prediction);
  /// What the coefficients predict for the result.
  Eigen::VectorXd predict(const Eigen::VectorXd& coefficients) const;
  /// Noise that rounding adds to such a sum, as energy: an estimate from the types and the order of summation.
  double model_noise(const Eigen::VectorXd& coefficients, Dtype dtype) const;

 private:
  const Problem& problem_;
  Eigen::MatrixXd columns_;  // scaled
  Eigen::VectorXd result_;   // scaled
  double scale_ = 1, size_ = 0;
  int equations_ = 0;
};

}  // namespace lockstep::live
