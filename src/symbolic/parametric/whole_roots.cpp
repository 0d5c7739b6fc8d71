// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/whole_roots.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>

#include "src/base/budget.h"

namespace lockstep::parametric {

namespace {

int sign_at(const std::vector<Rational>& coefficients, int x) {
  Budget::spend(static_cast<std::int64_t>(coefficients.size()));
  Rational value;
  for (auto coefficient = coefficients.rbegin(); coefficient != coefficients.rend(); ++coefficient)
    value = value * Rational(x) + *coefficient;
  return value.is_zero() ? 0 : value.is_negative() ? -1 : 1;
}

std::vector<Rational> derivative(const std::vector<Rational>& coefficients) {
  std::vector<Rational> result;
  for (std::size_t power = 1; power < coefficients.size(); ++power)
    result.push_back(coefficients[power] * Rational(static_cast<std::int64_t>(power)));
  return result;
}

/// Whole numbers k such that every zero from 1 to `most`, whole or not, lies in some [k, k + 1].
std::set<int> cells_with_roots(const std::vector<Rational>& coefficients, int most) {
  if (coefficients.size() < 2) return {};
  std::set<int> cells = cells_with_roots(derivative(coefficients), most);
  std::set<int> ends = {1, most};
  for (const int cell : cells) {
    ends.insert(cell);
    if (cell < most) ends.insert(cell + 1);
  }
  std::set<int> found = cells;  // where it turns it may touch zero
  for (auto end = ends.begin(), next = std::next(end); next != ends.end(); end = next++) {
    int low = *end, high = *next;
    const int at_low = sign_at(coefficients, low), at_high = sign_at(coefficients, high);
    if (at_low == 0) found.insert(low);
    if (at_high == 0) found.insert(high);
    if (at_low * at_high >= 0) continue;
    while (high - low > 1) {
      const int middle = low + (high - low) / 2;
      (sign_at(coefficients, middle) == at_low ? low : high) = middle;
    }
    found.insert(low);
  }
  return found;
}

}  // namespace

std::vector<int> whole_roots(const std::vector<Rational>& coefficients, int most) {
  std::set<int> candidates;
  for (const int cell : cells_with_roots(coefficients, most)) {
    candidates.insert(cell);
    if (cell < most) candidates.insert(cell + 1);
  }
  std::vector<int> roots;
  for (const int candidate : candidates) {
    if (sign_at(coefficients, candidate) == 0) roots.push_back(candidate);
  }
  return roots;
}

}  // namespace lockstep::parametric
