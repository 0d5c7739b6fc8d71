// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/base/pseudo_inverse.h"
#include "src/live/columns.h"

namespace lockstep::live {

/// What is to be explained: a result as a sum of columns.
struct Problem {
  std::vector<const Column*> columns;
  Vector result;
  Dtype result_dtype = Dtype::float32;
  Dtype coarsest = Dtype::float32;  ///< of the result, the columns and the reductions
  double elements = 1;              ///< of the piece
  /// Roundings of an element besides those of the additions: a cast, a division, the way to the optimizer and back.
  double roundings = 4;
};

/// Columns that enter with one factor, each times its weight. A column is in one group of a design at most.
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
  bool solved = false;                      ///< the groups can be told apart at all
  Vector factors, errors;                   ///< by group; standard deviations
  Vector coefficients, coefficient_errors;  ///< by column
  Vector prediction;
  double limit = 0;                ///< how many errors a factor may be off
  double residual = 0;             ///< of the result that is left, unbiased: relative to the result
  double noise = 0;                ///< how much of it rounding may leave: relative to the result
  bool explained = false;          ///< the residual is no more than that
  int equations = 0, freedom = 0;  ///< equations that are not empty, and more of them than groups
  Vector variances;                ///< by sum: of the result's noise
};

/// What solving a design needs that no result changes.
struct SolvedDesign {
  bool solved = false;  ///< the groups can be told apart at all
  Columnwise matrix;    ///< by group: its columns, weighted and added, divided by `norms`
  Columnwise inverse;   ///< of `matrix`, the pseudo-inverse: its rows say how noise of each sum enters a factor
  Columnwise energies;  ///< by sum and group: squares of its weighted columns, added
  Vector norms;
  double largest_partial = 0;  ///< of a design of one group: as Basis::largest_partial has it of its weights
};

/// The columns of problems, scaled by a power of two so that nothing is rounded and squares neither overflow nor fade.
class Basis {
 public:
  /// The exponent of 2 of the largest number among the columns and the result.
  static int exponent_for(double largest_of_columns, const Vector& result);
  Basis(const std::vector<const Column*>& columns, int exponent);

  SolvedDesign solve(const Design& design) const;
  double scale() const { return scale_; }
  /// By sum: whether some column is not zero there.
  const std::vector<char>& filled() const { return filled_; }
  /// The sum of all columns, each times its coefficient; scaled.
  Vector sum(const Vector& coefficients) const;
  /// The energy (sum of squares) of the largest partial sum, rank by rank or micro-batch by micro-batch; scaled.
  double largest_partial(const Vector& coefficients) const;

 private:
  Columnwise columns_;  // scaled
  std::vector<std::size_t> by_micro_batch_;
  std::vector<char> filled_;
  double scale_ = 1;
};

/// Solves designs for one problem. Keeps pointers to the problem and to its columns' basis.
class LeastSquares {
 public:
  LeastSquares(const Problem& problem, const Basis& basis);
  /// `solved`: what the basis says of the design.
  Fit fit(const Design& design, const SolvedDesign& solved) const;
  /// Whether there are as many equations as groups; else nothing solves the design.
  bool has_enough(const Design& design) const {
    return !design.empty() && equations_ >= static_cast<int>(design.size());
  }
  int equations() const { return equations_; }
  /// Norm of the result.
  double size() const { return size_; }
  /// How far two predictions are apart in units of the noise: the sum of squares over the sums.
  static double distance(const Fit& reference, const Vector& prediction);
  /// What the coefficients predict for the result.
  Vector predict(const Vector& coefficients) const { return basis_.sum(coefficients); }
  /// Noise that rounding adds to such a sum, as energy: an estimate from the types and the order of summation.
  double model_noise(const Vector& coefficients, Dtype dtype) const;

 private:
  double model_noise(double largest_partial, const Vector& coefficients, Dtype dtype) const;

  const Problem& problem_;
  const Basis& basis_;
  Vector result_;  // scaled
  double size_ = 0;
  int equations_ = 0;
};

}  // namespace lockstep::live
