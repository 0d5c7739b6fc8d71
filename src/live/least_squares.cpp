// SPDX-License-Identifier: Apache-2.0
#include "src/live/least_squares.h"

#include <Eigen/Core>
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

Columnwise zeros(std::size_t rows, std::size_t columns) { return {rows, columns, std::vector<double>(rows * columns)}; }

Eigen::Map<const Eigen::MatrixXd> view(const Columnwise& matrix) {
  return {matrix.elements.data(), static_cast<Eigen::Index>(matrix.rows), static_cast<Eigen::Index>(matrix.columns)};
}
Eigen::Map<Eigen::MatrixXd> view(Columnwise& matrix) {
  return {matrix.elements.data(), static_cast<Eigen::Index>(matrix.rows), static_cast<Eigen::Index>(matrix.columns)};
}
Eigen::Map<const Eigen::VectorXd> view(const Vector& vector) {
  return {vector.data(), static_cast<Eigen::Index>(vector.size())};
}
Eigen::Map<Eigen::VectorXd> view(Vector& vector) { return {vector.data(), static_cast<Eigen::Index>(vector.size())}; }

}  // namespace

int Basis::exponent_for(double largest_of_columns, const Vector& result) {
  int exponent = 0;
  std::frexp(std::max(largest(result), largest_of_columns), &exponent);
  return exponent;
}

Basis::Basis(const std::vector<const Column*>& columns, int exponent)
    : scale_(std::ldexp(1.0, std::clamp(-exponent, -1000, 1000))) {
  const std::size_t sums = columns.empty() ? 0 : columns.front()->values.size();
  columns_ = {sums, columns.size(), {}};
  columns_.elements.reserve(sums * columns.size());
  filled_.assign(sums, 0);
  for (const Column* column : columns) {
    for (std::size_t i = 0; i < sums; ++i) {
      columns_.elements.push_back(column->values[i] * scale_);
      if (column->values[i] != 0) filled_[i] = 1;
    }
  }
  by_micro_batch_.resize(columns.size());
  std::iota(by_micro_batch_.begin(), by_micro_batch_.end(), 0);
  std::stable_sort(by_micro_batch_.begin(), by_micro_batch_.end(),
                   [&](std::size_t a, std::size_t b) { return columns[a]->micro_batch < columns[b]->micro_batch; });
}

Vector Basis::sum(const Vector& coefficients) const {
  Vector result(columns_.rows);
  view(result) = view(columns_) * view(coefficients);
  return result;
}

double Basis::largest_partial(const Vector& coefficients) const {
  double largest = 0;
  for (const bool by_rank : {true, false}) {
    Eigen::VectorXd sum = Eigen::VectorXd::Zero(static_cast<Eigen::Index>(columns_.rows));
    for (std::size_t place = 0; place < columns_.columns; ++place) {
      const std::size_t j = by_rank ? place : by_micro_batch_[place];
      if (coefficients[j] == 0) continue;
      sum += coefficients[j] * view(columns_).col(static_cast<Eigen::Index>(j));
      largest = std::max(largest, sum.squaredNorm());
    }
  }
  return largest;
}

SolvedDesign Basis::solve(const Design& design) const {
  SolvedDesign result;
  const std::size_t sums = columns_.rows, groups = design.size();
  if (groups > sums) return result;
  result.matrix = zeros(sums, groups);
  result.energies = zeros(sums, groups);
  result.norms.resize(groups);
  const Eigen::Map<const Eigen::MatrixXd> columns = view(columns_);
  Eigen::Map<Eigen::MatrixXd> matrix = view(result.matrix), energies = view(result.energies);
  for (std::size_t g = 0; g < groups; ++g) {
    const auto place = static_cast<Eigen::Index>(g);
    for (const Group::Share& share : design[g].shares) {
      const auto column = columns.col(static_cast<Eigen::Index>(share.column));
      matrix.col(place) += share.rounded * column;
      energies.col(place) += squared(share.rounded) * column.cwiseAbs2();
    }
    result.norms[g] = matrix.col(place).norm();
    if (!(result.norms[g] > 0)) return result;
    matrix.col(place) /= result.norms[g];
  }
  std::optional<Columnwise> inverse = pseudo_inverse(result.matrix, 0x1p-40);
  if (!inverse) return result;
  result.solved = true;
  result.inverse = std::move(*inverse);
  if (groups == 1) {
    Vector weights(columns_.columns);
    for (const Group::Share& share : design.front().shares) weights[share.column] = share.rounded;
    result.largest_partial = largest_partial(weights);
  }
  return result;
}

LeastSquares::LeastSquares(const Problem& problem, const Basis& basis)
    : problem_(problem), basis_(basis), result_(scaled(problem.result, basis.scale())), size_(view(result_).norm()) {
  for (std::size_t i = 0; i < result_.size(); ++i) {
    const bool filled = !basis.filled().empty() && basis.filled()[i] != 0;
    if (result_[i] != 0 || filled) ++equations_;
  }
}

double LeastSquares::model_noise(const Vector& coefficients, Dtype dtype) const {
  return model_noise(basis_.largest_partial(coefficients), coefficients, dtype);
}

double LeastSquares::model_noise(double largest_partial, const Vector& coefficients, Dtype dtype) const {
  // Each partial sum is rounded once.
  const auto entered = std::count_if(coefficients.begin(), coefficients.end(), [](double one) { return one != 0; });
  const double roundings = static_cast<double>(entered) + problem_.roundings;
  return roundings * (squared(unit_roundoff(dtype)) / 3 * std::max(squared(size_), largest_partial) +
                      squared(smallest_spacing(dtype) * basis_.scale()) / 12 * problem_.elements);
}

Fit LeastSquares::fit(const Design& design, const SolvedDesign& solved) const {
  Fit fit;
  const std::size_t sums = result_.size(), groups = design.size();
  fit.equations = equations_;
  fit.freedom = equations_ - static_cast<int>(groups);
  if (!has_enough(design) || !solved.solved) return fit;
  fit.solved = true;
  const auto matrix = view(solved.matrix), inverse = view(solved.inverse);
  const auto result = view(result_);
  Eigen::VectorXd factors = inverse * result;
  factors += inverse * (result - matrix * factors);  // refined once
  const Eigen::VectorXd prediction = matrix * factors;
  factors = factors.cwiseQuotient(view(solved.norms));
  fit.prediction.assign(prediction.begin(), prediction.end());
  fit.factors.assign(factors.begin(), factors.end());
  fit.coefficients.resize(problem_.columns.size());
  for (std::size_t g = 0; g < groups; ++g) {
    for (const Group::Share& share : design[g].shares) fit.coefficients[share.column] = share.rounded * fit.factors[g];
  }

  // Energy of each sum, to which its noise is proportional: one large element may be all there is of a gradient.
  const Eigen::VectorXd energy = result.cwiseAbs2() + view(solved.energies) * factors.cwiseAbs2();
  const double all = energy.sum();
  const Eigen::VectorXd left = result - prediction;
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
    for (Eigen::Index i = 0; i < energy.size(); ++i) {
      if (energy[i] > 0) ratio += squared(left[i]) / (energy[i] + 0.1 * typical);
    }
    const double measured = ratio / equations_ * unbiased * all;
    noise = std::max(measured, 4 * squared(unit_roundoff(problem_.result_dtype)) / 3 * squared(size_) + floor);
  }
  fit.limit = fit.freedom >= enough_freedom ? 6 + 30.0 / fit.freedom : 6;
  fit.variances.resize(sums);
  for (std::size_t i = 0; i < sums; ++i) {
    if (all > 0) fit.variances[i] = noise * std::max(1.0 / equations_, energy[static_cast<Eigen::Index>(i)] / all);
  }
  fit.errors.resize(groups);
  view(fit.errors) = (inverse.cwiseAbs2() * view(fit.variances)).cwiseSqrt().cwiseQuotient(view(solved.norms));
  fit.coefficient_errors.resize(fit.coefficients.size());
  for (std::size_t g = 0; g < groups; ++g) {
    for (const Group::Share& share : design[g].shares)
      fit.coefficient_errors[share.column] = std::abs(share.rounded) * fit.errors[g];
  }
  const double size = size_ > 0 ? size_ : 1;
  fit.residual = fit.freedom > 0 ? std::sqrt(left.squaredNorm() * unbiased) / size : 0;
  fit.noise = margin * std::sqrt(model) / size;
  fit.explained = fit.residual <= fit.noise;
  return fit;
}

double LeastSquares::distance(const Fit& reference, const Vector& prediction) {
  double sum = 0;
  for (std::size_t i = 0; i < prediction.size(); ++i) {
    const double apart = squared(prediction[i] - reference.prediction[i]);
    if (apart > 0) sum += apart / std::max(reference.variances[i], 1e-300);
  }
  return sum;
}

}  // namespace lockstep::live
