// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// Elements [begin, end).
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// A set of elements: ascending, not empty, not touching.
using Intervals = std::vector<Interval>;

Interval intersect(const Interval& a, const Interval& b);
Intervals intersect(const Intervals& a, const Interval& b);
Intervals intersect(const Intervals& a, const Intervals& b);
Intervals unite(const Intervals& a, const Intervals& b);
/// What of `a` is not in `b`.
Intervals subtract(const Intervals& a, const Intervals& b);
std::int64_t size(const Intervals& set);
/// The elements of `view`, taken together as one stretch, that stand at `positions` of it.
Intervals expand(const Intervals& view, const Interval& positions);

}  // namespace lockstep
