// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/schedule.h"

namespace lockstep::report {

/// A parameter's placement on each axis larger than 1 (but pp), as DTensor writes it: "S(0)"
/// (Shard), "R" (Replicate), "P" (Partial). "D" where a dispatched parameter takes in the tokens of
/// the whole axis. The axes that split the tokens are "R": each of their ranks holds all of it.
std::vector<std::pair<std::string, std::string>> placements(const Mesh& mesh, const Parameter& parameter);

/// An `over` as a scenario writes it: "dp", "[dp, cp]", "{pp: [0, 1]}".
std::string over_text(const Over& over);

}  // namespace lockstep::report
