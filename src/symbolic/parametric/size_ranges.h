// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lockstep/expression.h"
#include "lockstep/rational.h"

namespace lockstep::parametric {

/// Numbers between two bounds; without one they go on for ever.
struct SizeRange {
  std::optional<Rational> low, high;
  bool above_low = false, below_high = false;  ///< the bound itself is not among them

  static SizeRange exactly(const Rational& number) { return {number, number, false, false}; }
  static SizeRange from(int low) { return {Rational(low), std::nullopt, false, false}; }
  bool is_one() const { return low && high && *low == *high; }
};

/// The range that a name has, 1 and 0 for what is true and false; nothing where that is not known.
using RangeOf = std::function<std::optional<SizeRange>(const std::string&)>;

/// Whether a condition on sizes holds at all of these sizes (true) or at none (false); nothing where that is not seen:
/// each name counts as one of its own wherever it stands.
std::optional<bool> truth_in_ranges(const Expression::Node& condition, const RangeOf& range_of);
/// Between which numbers a number is; nothing where that is not seen.
std::optional<SizeRange> number_in_ranges(const Expression::Node& number, const RangeOf& range_of);

/// The largest number that has no more binary digits than an expression may have.
const Rational& largest_number();

}  // namespace lockstep::parametric
