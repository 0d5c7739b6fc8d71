// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/comparison.h"
#include "lockstep/intervals.h"

namespace lockstep::diagnosis {

/// Elements that a rank's optimizer owns, and the value that it gets for them: equal numbers are equal values.
struct OwnedStretch {
  Interval elements;
  int value = 0;
  int rank = 0, buffer = 0, form = 0;
};

/// Where one value is held.
struct Held {
  std::vector<OwnedStretch> stretches;  ///< ascending
  Intervals where;                      ///< all of them together
};

std::map<int, Held> by_value(std::vector<OwnedStretch> stretches);

/// A value that some owner of elements has in the old schedule and none in the new one.
struct OtherValue {
  int before = 0;
  int after = 0;       ///< the lowest among their owners' values
  Intervals elements;  ///< of which that is so
};

/// Whether the owners of elements have the same values in two schedules, whoever they are. What has no owner in the new
/// one is left out. Ascending by values. `looked_at`, where given, is increased by what was visited.
/// Complexity: the stretches, and for values that differ the number of pairs of them.
std::vector<OtherValue> other_values(const std::map<int, Held>& before, const std::map<int, Held>& after,
                                     std::size_t* looked_at = nullptr);

/// Who holds `elements`, in the old one and in the new one, by the first `most` stretches that are the same ranks'; in
/// how many further elements is added to `more`. Both lists ascending.
std::vector<DifferingElements> holders(const Intervals& elements, const std::vector<OwnedStretch>& before,
                                       const std::vector<OwnedStretch>& after, std::size_t most, std::int64_t& more);

}  // namespace lockstep::diagnosis
