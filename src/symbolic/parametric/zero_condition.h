// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>

#include "src/symbolic/parametric/cases.h"

namespace lockstep::parametric {

/// Sizes whose product, each to its power, is a number: "cp*dp = 16". A factor that somebody wrote as a number is right
/// at such sizes alone.
struct ZeroCondition {
  std::map<Variable, int> exponents;  ///< of sizes; none is 0, and the first is positive
  Rational product;

  bool operator==(const ZeroCondition&) const = default;
  bool holds(const Sizes& sizes) const;
  /// What is left of it in a case that has one size of some axes.
  ZeroCondition within(const CaseSizes& one) const;
  /// Whether it holds at none of the sizes of a reason, as far as their least ones show it.
  bool never_holds(const Reason& reason) const;
};

/// Where the value of a reason is zero, if that is such a condition; nothing where it is another one, or none.
std::optional<ZeroCondition> zero_condition(const Reason& reason);

/// "cp*dp = 16", "dp = 2*cp".
std::string describe(const ZeroCondition& condition);

}  // namespace lockstep::parametric
