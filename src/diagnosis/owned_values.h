// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/intervals.h"

namespace lockstep {

/// Elements that a rank's optimizer owns, and the value that it gets for them: equal numbers are equal values.
struct OwnedStretch {
  Interval elements;
  int value = 0;
  int rank = 0, buffer = 0, form = 0;
};

/// A value that some owner of elements has in the old schedule and none in the new one.
struct OtherValue {
  OwnedStretch before;  ///< with the first elements of which that is so
  OwnedStretch after;   ///< an owner of the same elements, with the lowest number among its owners' values
};

/// Whether the owners of elements have the same values in two schedules, whoever they are. What has no owner in the new
/// one is left out. One entry for each stretch of the old one, ascending by values and ranks; ranks with the same value
/// of the same elements are told by the lowest. `looked_at`, where given, is increased by what was visited.
/// Complexity: sorting of the stretches, and for values that differ the number of pairs of them.
std::vector<OtherValue> other_values(std::vector<OwnedStretch> before, std::vector<OwnedStretch> after,
                                     std::size_t* looked_at = nullptr);

}  // namespace lockstep
