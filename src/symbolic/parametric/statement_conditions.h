// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/symbolic/parametric/cases.h"
#include "src/symbolic/parametric/grid.h"

namespace lockstep::parametric {

/// Whether some value is right where a product of several sizes is a number.
bool needs_conditions(const std::vector<Reason>& reasons);

/// Where the reason applies: "dp ≥ 2 and pp = 1, unless 8/dp + tp = 6".
std::string describe_condition(const Reason& reason);

/// "wrong for dp ≥ 2 unless cp*dp = 16; for pp ≥ 2".
std::string statement_by_conditions(const std::vector<Reason>& reasons, const Grid& grid);

}  // namespace lockstep::parametric
