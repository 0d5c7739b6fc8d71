// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "lockstep/rational.h"

namespace lockstep::live {

/// The fraction with the smallest denominator within `tolerance` of `value`, if it is no coincidence that there is one:
/// a number drawn at random is as near to a fraction with so small a denominator once in ten times at most. Nothing for
/// denominators above 10,000.
std::optional<Rational> nearest_fraction(double value, double tolerance);

}  // namespace lockstep::live
