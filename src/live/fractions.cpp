// SPDX-License-Identifier: Apache-2.0
#include "src/live/fractions.h"

#include <cmath>
#include <cstdint>

namespace lockstep::live {

namespace {

constexpr double largest_denominator = 1e4, largest_value = 1e12;
// Fractions with denominators up to q are about 3 q^2 / pi^2 on a stretch of length 1.
constexpr double fractions_per_square = 0.304;
constexpr double most_coincidence = 0.1;

struct Pair {
  double numerator = 0, denominator = 1;
};

/// The fraction with the smallest denominator in [low, high], 0 <= low <= high: walks down both continued fractions as
/// long as they agree.
Pair simplest_between(double low, double high, int depth = 0) {
  const double whole = std::ceil(low);
  if (whole <= high || depth > 40) return {whole, 1};
  const double floor = std::floor(low);
  const Pair rest = simplest_between(1 / (high - floor), 1 / (low - floor), depth + 1);
  return {floor * rest.numerator + rest.denominator, rest.numerator};
}

}  // namespace

std::optional<Rational> nearest_fraction(double value, double tolerance) {
  const double size = std::abs(value);
  if (!std::isfinite(value) || !std::isfinite(tolerance) || size > largest_value) return std::nullopt;
  Pair found;
  if (size > tolerance) found = simplest_between(size - tolerance, size + tolerance);
  const double q = found.denominator;
  if (!(q >= 1) || q > largest_denominator || std::abs(found.numerator) > largest_value * largest_denominator)
    return std::nullopt;
  if (2 * tolerance * fractions_per_square * q * q > most_coincidence) return std::nullopt;
  const Rational fraction(static_cast<std::int64_t>(found.numerator), static_cast<std::int64_t>(q));
  return value < 0 ? -fraction : fraction;
}

}  // namespace lockstep::live
