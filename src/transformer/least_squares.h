// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "lockstep/intervals.h"
#include "lockstep/rational.h"
#include "src/transformer/matrix.h"

namespace lockstep::transformer {

/// The fraction with the smallest denominator (at most 4096) within 1e-9 of `value`, relative where that is above 1.
std::optional<Rational> nearest_fraction(double value);

/// The coefficients with which the contributions add up to `got` on these elements; one for each. Nothing where the
/// contributions are too alike there to tell, where no combination of them yields `got`, or where a coefficient is no
/// small fraction.
std::optional<std::vector<Rational>> find_coefficients(const std::vector<const Real*>& contributions,
                                                       const std::vector<double>& got, const Interval& elements);

}  // namespace lockstep::transformer
