// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/least_squares.h"

#include <cmath>

#include "src/base/pseudo_inverse.h"

namespace lockstep::transformer {

namespace {

double length(const std::vector<double>& vector) {
  double squares = 0;
  for (const double element : vector) squares += element * element;
  return std::sqrt(squares);
}

std::vector<double> product(const Columnwise& matrix, const std::vector<double>& vector) {
  std::vector<double> result(matrix.rows);
  for (std::size_t j = 0; j < matrix.columns; ++j) {
    for (std::size_t i = 0; i < matrix.rows; ++i) result[i] += matrix.elements[j * matrix.rows + i] * vector[j];
  }
  return result;
}

}  // namespace

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
  const auto rows = static_cast<std::size_t>(elements.size());
  const std::vector<double> right(got.begin() + elements.begin, got.begin() + elements.end);
  // As many unknowns as equations fit anything at all.
  if (contributions.empty() && rows > 0 && length(right) == 0) return std::vector<Rational>();
  if (contributions.empty() || rows <= contributions.size()) return std::nullopt;
  Columnwise matrix{rows, contributions.size(), {}};
  std::vector<double> lengths;
  for (const Real* contribution : contributions) {
    std::vector<double> column(contribution->data() + elements.begin, contribution->data() + elements.end);
    lengths.push_back(length(column));
    if (lengths.back() == 0) return std::nullopt;
    for (const double element : column) matrix.elements.push_back(element / lengths.back());
  }
  const std::optional<Columnwise> inverse = pseudo_inverse(matrix, 1e-6);
  if (!inverse) return std::nullopt;
  const std::vector<double> solution = product(*inverse, right);
  std::vector<double> left = product(matrix, solution);
  for (std::size_t i = 0; i < rows; ++i) left[i] -= right[i];
  constexpr double tolerance = 1e-9;
  if (!(length(left) <= tolerance * (length(right) + length(solution)))) return std::nullopt;
  std::vector<Rational> result;
  for (std::size_t i = 0; i < solution.size(); ++i) {
    const std::optional<Rational> fraction = nearest_fraction(solution[i] / lengths[i]);
    if (!fraction) return std::nullopt;
    result.push_back(*fraction);
  }
  return result;
}

}  // namespace lockstep::transformer
