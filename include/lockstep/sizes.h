// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/mesh.h"

namespace lockstep {

/// Sizes that a scenario is read at in the place of its own.
struct Sizes {
  /// What it does not name stays as the file has it. Of a part of dp without dp, dp is the product of the parts. With
  /// edp, dp is whole, and as many times edp as ep says here, and an etp that the file has is tp.
  std::map<Axis, int> axes;
  std::optional<int> micro_batches;  ///< of each optimizer step; none: as the file has them
  std::vector<Axis> any = {};        ///< axes whose size is "any"
  auto operator<=>(const Sizes&) const = default;
};
/// "dp 2, pp 4, 3 micro-batches"
std::string describe(const Sizes& sizes);

}  // namespace lockstep
