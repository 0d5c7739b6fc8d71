// SPDX-License-Identifier: Apache-2.0
#include "src/live/least_squares.h"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/live/precision.h"

namespace lockstep::live {

namespace {

/// The noise is estimated from the residual where there are so many more equations than unknowns.
constexpr int enough_freedom = 16;
/// A residual may be so many times what rounding is thought to leave.
constexpr double margin = 5;
/// What float64 itself loses, relative to the sums.
constexpr double own_rounding = 0x1p-46;

}  // namespace

int Basis::exponent_for(double largest_of_columns, const Eigen::VectorXd& result) {
  const double largest = result.size() > 0 ? result.cwiseAbs().maxCoeff() : 0;
  int exponent = 0;
  std::frexp(std::max(largest, largest_of_columns), &exponent);
  return exponent;
}

Basis::Basis(const std::vector<const Column*>& columns, int exponent)
    : scale_(std::ldexp(1.0, std::clamp(-exponent, -1000, 1000))) {
  const Eigen::Index sums = columns.empty() ? 0 : columns.front()->values.size();
  columns_.resize(sums, static_cast<Eigen::Index>(columns.size()));
  filled_.assign(static_cast<std::size_t>(sums), 0);
  for (std::size_t j = 0; j < columns.size(); ++j) {
    const Eigen::VectorXd& values = columns[j]->values;
    columns_.col(static_cast<Eigen::Index>(j)) = values * scale_;
    for (Eigen::Index i = 0; i < sums; ++i) {
      if (values[i] != 0) filled_[static_cast<std::size_t>(i)] = 1;
    }
  }
  by_micro_batch_.resize(columns.size());
  std::iota(by_micro_batch_.begin(), by_micro_batch_.end(), 0);
  std::stable_sort(by_micro_batch_.begin(), by_micro_batch_.end(), [&](Eigen::Index a, Eigen::Index b) {
    return columns[static_cast<std::size_t>(a)]->micro_batch < columns[static_cast<std::size_t>(b)]->micro_batch;
  });
}

double Basis::largest_partial(const Eigen::VectorXd& coefficients) const {
  double largest = 0;
  for (const bool by_rank : {true, false}) {
    Eigen::VectorXd sum = Eigen::VectorXd::Zero(columns_.rows());
    for (Eigen::Index place = 0; place < columns_.cols(); ++place) {
      const Eigen::Index j = by_rank ? place : by_micro_batch_[static_cast<std::size_t>(place)];
      if (coefficients[j] == 0) continue;
      sum += coefficients[j] * columns_.col(j);
      largest = std::max(largest, sum.squaredNorm());
    }
  }
  return largest;
}

SolvedDesign Basis::solve(const Design& design) const {
  SolvedDesign result;
  const Eigen::Index sums = columns_.rows(), groups = static_cast<Eigen::Index>(design.size());
  if (groups > sums) return result;
  result.matrix = Eigen::MatrixXd::Zero(sums, groups);
  result.energies = Eigen::MatrixXd::Zero(sums, groups);
  result.norms.resize(groups);
  for (Eigen::Index g = 0; g < groups; ++g) {
    for (const Group::Share& share : design[static_cast<std::size_t>(g)].shares) {
      const auto column = columns_.col(static_cast<Eigen::Index>(share.column));
      result.matrix.col(g) += share.rounded * column;
      result.energies.col(g) += squared(share.rounded) * column.cwiseAbs2();
    }
    result.norms[g] = result.matrix.col(g).norm();
    if (!(result.norms[g] > 0)) return result;
    result.matrix.col(g) /= result.norms[g];
  }
  Eigen::ColPivHouseholderQR<Eigen::MatrixXd> qr(result.matrix);
  qr.setThreshold(0x1p-40);
  if (qr.rank() < groups) return result;
  result.solved = true;
  const Eigen::MatrixXd thin = qr.householderQ() * Eigen::MatrixXd::Identity(sums, groups);
  const Eigen::MatrixXd solved =
      qr.matrixQR().topLeftCorner(groups, groups).triangularView<Eigen::Upper>().solve(thin.transpose());
  result.inverse = qr.colsPermutation() * solved;
  if (groups == 1) {
    Eigen::VectorXd weights = Eigen::VectorXd::Zero(columns_.cols());
    for (const Group::Share& share : design.front().shares)
      weights[static_cast<Eigen::Index>(share.column)] = share.rounded;
    result.largest_partial = largest_partial(weights);
  }
  return result;
}

LeastSquares::LeastSquares(const Problem& problem, const Basis& basis)
    : problem_(problem), basis_(basis), result_(problem.result * basis.scale()), size_(result_.norm()) {
  for (Eigen::Index i = 0; i < result_.size(); ++i) {
    const bool filled = !basis.filled().empty() && basis.filled()[static_cast<std::size_t>(i)] != 0;
    if (result_[i] != 0 || filled) ++equations_;
  }
}

double LeastSquares::model_noise(const Eigen::VectorXd& coefficients, Dtype dtype) const {
  return model_noise(basis_.largest_partial(coefficients), coefficients, dtype);
}

double LeastSquares::model_noise(double largest_partial, const Eigen::VectorXd& coefficients, Dtype dtype) const {
  // Each partial sum is rounded once.
  const double roundings = static_cast<double>((coefficients.array() != 0).count()) + problem_.roundings;
  return roundings * (squared(unit_roundoff(dtype)) / 3 * std::max(squared(size_), largest_partial) +
                      squared(smallest_spacing(dtype) * basis_.scale()) / 12 * problem_.elements);
}

Fit LeastSquares::fit(const Design& design, const SolvedDesign& solved) const {
  Fit fit;
  const Eigen::Index sums = result_.size(), groups = static_cast<Eigen::Index>(design.size());
  fit.equations = equations_;
  fit.freedom = equations_ - static_cast<int>(groups);
  if (!has_enough(design) || !solved.solved) return fit;
  fit.solved = true;
  Eigen::VectorXd factors = solved.inverse * result_;
  factors += solved.inverse * (result_ - solved.matrix * factors);  // refined once
  fit.prediction = solved.matrix * factors;
  fit.factors = factors.cwiseQuotient(solved.norms);
  fit.coefficients = Eigen::VectorXd::Zero(static_cast<Eigen::Index>(problem_.columns.size()));
  for (Eigen::Index g = 0; g < groups; ++g) {
    for (const Group::Share& share : design[static_cast<std::size_t>(g)].shares)
      fit.coefficients[static_cast<Eigen::Index>(share.column)] = share.rounded * fit.factors[g];
  }

  // Energy of each sum, to which its noise is proportional: one large element may be all there is of a gradient.
  const Eigen::VectorXd energy = result_.cwiseAbs2() + solved.energies * fit.factors.cwiseAbs2();
  const double all = energy.sum();
  const Eigen::VectorXd left = result_ - fit.prediction;
  const double unbiased = fit.freedom > 0 ? static_cast<double>(equations_) / fit.freedom : 1;
  const double floor = squared(own_rounding) * all;
  const double largest_partial =
      groups == 1 ? squared(fit.factors[0]) * solved.largest_partial : basis_.largest_partial(fit.coefficients);
  const double model = model_noise(largest_partial, fit.coefficients, problem_.coarsest) + floor;
  double noise = model;
  if (fit.freedom >= enough_freedom) {
    std::vector<double> sorted;
    for (const double one : energy) {
      if (one > 0) sorted.push_back(one);
    }
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    const double typical = middle != sorted.end() ? *middle : 0;  // squares of the smallest numbers are zero
    double ratio = 0;
    for (Eigen::Index i = 0; i < sums; ++i) {
      if (energy[i] > 0) ratio += squared(left[i]) / (energy[i] + 0.1 * typical);
    }
    const double measured = ratio / equations_ * unbiased * all;
    noise = std::max(measured, 4 * squared(unit_roundoff(problem_.result_dtype)) / 3 * squared(size_) + floor);
  }
  fit.limit = fit.freedom >= enough_freedom ? 6 + 30.0 / fit.freedom : 6;
  fit.variances = Eigen::VectorXd::Zero(sums);
  for (Eigen::Index i = 0; i < sums; ++i) {
    if (all > 0) fit.variances[i] = noise * std::max(1.0 / equations_, energy[i] / all);
  }
  fit.errors = (solved.inverse.cwiseAbs2() * fit.variances).cwiseSqrt().cwiseQuotient(solved.norms);
  fit.coefficient_errors = Eigen::VectorXd::Zero(fit.coefficients.size());
  for (Eigen::Index g = 0; g < groups; ++g) {
    for (const Group::Share& share : design[static_cast<std::size_t>(g)].shares)
      fit.coefficient_errors[static_cast<Eigen::Index>(share.column)] = std::abs(share.rounded) * fit.errors[g];
  }
  const double size = size_ > 0 ? size_ : 1;
  fit.residual = fit.freedom > 0 ? std::sqrt(left.squaredNorm() * unbiased) / size : 0;
  fit.noise = margin * std::sqrt(model) / size;
  fit.explained = fit.residual <= fit.noise;
  return fit;
}

double LeastSquares::distance(const Fit& reference, const Eigen::VectorXd& prediction) {
  double sum = 0;
  for (Eigen::Index i = 0; i < prediction.size(); ++i) {
    const double apart = squared(prediction[i] - reference.prediction[i]);
    if (apart > 0) sum += apart / std::max(reference.variances[i], 1e-300);
  }
  return sum;
}

}  // namespace lockstep::live
