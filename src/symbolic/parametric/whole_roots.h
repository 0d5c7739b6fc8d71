// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/rational.h"

namespace lockstep::parametric {

/// The whole numbers from 1 to `most` at which a polynomial is zero, ascending. `coefficients` of x^0, x^1, …; the last
/// one is not zero. Spends budget; throws OverBudget.
///
/// Between two neighbouring zeros of its derivative a polynomial rises or falls, so that one zero at most lies there,
/// and is found by halving. Those of the derivative are found the same way.
std::vector<int> whole_roots(const std::vector<Rational>& coefficients, int most);

}  // namespace lockstep::parametric
