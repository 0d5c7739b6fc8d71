// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/least_squares.h"

#include <Eigen/QR>
#include <cmath>

namespace lockstep::transformer {

// Continued fractions: each convergent is the best fraction of its denominator.
std::optional<Rational> nearest_fraction(double value) {
  constexpr double tolerance = 1e-9, largest_whole = 1e9;
  constexpr std::int64_t largest_denominator = 4096;
  if (!(std::abs(value) < largest_whole)) return std::nullopt;
  std::int64_t numerator = 1, denominator = 0, last_numerator = 0, last_denominator = 1;
  double rest = value;
  for (int i = 0; i < 20; ++i) {
    const double whole = std::floor(rest);
    const auto part = static_cast<std::int64_t>(whole);
    const std::int64_t next_numerator = part * numerator + last_numerator;
    const std::int64_t next_denominator = part * denominator + last_denominator;
    if (next_denominator > largest_denominator) return std::nullopt;
    last_numerator = numerator;
    last_denominator = denominator;
    numerator = next_numerator;
    denominator = next_denominator;
    const double found = static_cast<double>(numerator) / static_cast<double>(denominator);
    if (std::abs(found - value) <= tolerance * std::max(1.0, std::abs(value))) return Rational(numerator, denominator);
    rest = 1 / (rest - whole);
    if (!(rest < largest_whole)) return std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::vector<Rational>> find_coefficients(const std::vector<const Real*>& contributions,
                                                       const std::vector<double>& got, const Interval& elements) {
  const auto rows = static_cast<Index>(elements.size());
  const auto columns = static_cast<Index>(contributions.size());
  const Eigen::Map<const Eigen::VectorXd> right(got.data() + elements.begin, rows);
  // As many unknowns as equations fit anything at all.
  if (columns == 0 && rows > 0 && right.isZero(0)) return std::vector<Rational>();
  if (columns == 0 || rows <= columns) return std::nullopt;
  Eigen::MatrixXd matrix(rows, columns);
  Eigen::VectorXd lengths(columns);
  for (Index i = 0; i < columns; ++i) {
    const Real& contribution = *contributions[static_cast<std::size_t>(i)];
    matrix.col(i) = Eigen::Map<const Eigen::VectorXd>(contribution.data() + elements.begin, rows);
    lengths(i) = matrix.col(i).norm();
    if (lengths(i) == 0) return std::nullopt;
    matrix.col(i) /= lengths(i);
  }
  Eigen::ColPivHouseholderQR<Eigen::MatrixXd> factors(matrix);
  factors.setThreshold(1e-6);
  if (factors.rank() < columns) return std::nullopt;
  const Eigen::VectorXd solution = factors.solve(right);
  constexpr double tolerance = 1e-9;
  if (!((matrix * solution - right).norm() <= tolerance * (right.norm() + solution.norm()))) return std::nullopt;
  std::vector<Rational> result;
  for (Index i = 0; i < columns; ++i) {
    const std::optional<Rational> fraction = nearest_fraction(solution(i) / lengths(i));
    if (!fraction) return std::nullopt;
    result.push_back(*fraction);
  }
  return result;
}

}  // namespace lockstep::transformer
