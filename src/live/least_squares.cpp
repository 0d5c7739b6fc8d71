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

double squared(double value) { return value * value; }

}  // namespace

LeastSquares::LeastSquares(const Problem& problem) : problem_(problem) {
  const Eigen::Index sums = problem.result.size(), count = static_cast<Eigen::Index>(problem.columns.size());
  double largest = problem.result.size() > 0 ? problem.result.cwiseAbs().maxCoeff() : 0;
  for (const Column* column : problem.columns) largest = std::max(largest, column->values.cwiseAbs().maxCoeff());
  // A power of two, so that nothing is rounded; squares neither overflow nor fade.
  int exponent = 0;
  if (largest > 0) std::frexp(largest, &exponent);
  scale_ = std::ldexp(1.0, std::clamp(-exponent, -1000, 1000));
  columns_.resize(sums, count);
  for (Eigen::Index j = 0; j < count; ++j)
    columns_.col(j) = problem.columns[static_cast<std::size_t>(j)]->values * scale_;
  result_ = problem.result * scale_;
  size_ = result_.norm();
  for (Eigen::Index i = 0; i < sums; ++i) {
    if (result_[i] != 0 || (count > 0 && (columns_.row(i).array() != 0).any())) ++equations_;
  }
}

Eigen::VectorXd LeastSquares::predict(const Eigen::VectorXd& coefficients) const { return columns_ * coefficients; }

double LeastSquares::model_noise(const Eigen::VectorXd& coefficients, Dtype dtype) const {
  // The largest partial sum, rank by rank and micro-batch by micro-batch: each is rounded once.
  std::vector<Eigen::Index> order(static_cast<std::size_t>(columns_.cols()));
  std::iota(order.begin(), order.end(), 0);
  double largest = squared(size_), additions = 0;
  for (int pass = 0; pass < 2; ++pass) {
    Eigen::VectorXd sum = Eigen::VectorXd::Zero(result_.size());
    for (const Eigen::Index j : order) {
      sum += coefficients[j] * columns_.col(j);
      largest = std::max(largest, sum.squaredNorm());
      if (pass == 0 && coefficients[j] != 0) ++additions;
    }
    std::stable_sort(order.begin(), order.end(), [&](Eigen::Index a, Eigen::Index b) {
      return problem_.columns[static_cast<std::size_t>(a)]->micro_batch <
             problem_.columns[static_cast<std::size_t>(b)]->micro_batch;
    });
  }
  const double roundings = additions + problem_.roundings;
  return roundings * (squared(unit_roundoff(dtype)) / 3 * largest +
                      squared(smallest_spacing(dtype) * scale_) / 12 * problem_.elements);
}

Fit LeastSquares::fit(const Design& design) const {
  Fit fit;
  const Eigen::Index sums = result_.size(), groups = static_cast<Eigen::Index>(design.size());
  fit.equations = equations_;
  fit.freedom = equations_ - static_cast<int>(groups);
  if (fit.freedom < 0 || groups == 0) return fit;
  Eigen::MatrixXd matrix = Eigen::MatrixXd::Zero(sums, groups);
  Eigen::VectorXd norms(groups);
  for (Eigen::Index g = 0; g < groups; ++g) {
    for (const Group::Share& share : design[static_cast<std::size_t>(g)].shares)
      matrix.col(g) += share.rounded * columns_.col(static_cast<Eigen::Index>(share.column));
    norms[g] = matrix.col(g).norm();
    if (!(norms[g] > 0)) return fit;
    matrix.col(g) /= norms[g];
  }
  Eigen::ColPivHouseholderQR<Eigen::MatrixXd> qr(matrix);
  qr.setThreshold(0x1p-40);
  if (qr.rank() < groups) return fit;
  fit.solved = true;
  // The pseudo-inverse: its rows say how noise of each sum enters each factor.
  const Eigen::MatrixXd thin = qr.householderQ() * Eigen::MatrixXd::Identity(sums, groups);
  const Eigen::MatrixXd solved =
      qr.matrixQR().topLeftCorner(groups, groups).triangularView<Eigen::Upper>().solve(thin.transpose());
  const Eigen::MatrixXd inverse = qr.colsPermutation() * solved;
  Eigen::VectorXd factors = inverse * result_;
  factors += inverse * (result_ - matrix * factors);  // refined once
  fit.prediction = matrix * factors;
  fit.factors = factors.cwiseQuotient(norms);
  fit.coefficients = Eigen::VectorXd::Zero(columns_.cols());
  for (Eigen::Index g = 0; g < groups; ++g) {
    for (const Group::Share& share : design[static_cast<std::size_t>(g)].shares)
      fit.coefficients[static_cast<Eigen::Index>(share.column)] += share.rounded * fit.factors[g];
  }

  // Energy of each sum, to which its noise is proportional: one large element may be all there is of a gradient.
  Eigen::VectorXd energy = result_.cwiseAbs2();
  for (Eigen::Index j = 0; j < columns_.cols(); ++j)
    energy += squared(fit.coefficients[j]) * columns_.col(j).cwiseAbs2();
  const double all = energy.sum();
  const Eigen::VectorXd left = result_ - fit.prediction;
  const double unbiased = fit.freedom > 0 ? static_cast<double>(equations_) / fit.freedom : 1;
  const double floor = squared(own_rounding) * all;
  const double model = model_noise(fit.coefficients, problem_.coarsest) + floor;
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
  fit.errors = (inverse.cwiseAbs2() * fit.variances).cwiseSqrt().cwiseQuotient(norms);
  fit.coefficient_errors = Eigen::VectorXd::Zero(columns_.cols());
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
