// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep::parametric {

/// Sizes as a list of numbers: one for each open axis, then the number of micro-batches where that is open.
using Point = std::vector<int>;

/// Sizes in one dimension that a box holds.
struct Bound {
  std::optional<int> exact;  ///< none: all from `least` on, up to `most` where there is an end, but those in `but`
  int least = 1;
  std::set<int> but;
  std::optional<int> most = std::nullopt;

  auto operator<=>(const Bound& other) const = default;
  bool holds(int value) const {
    if (exact) return value == *exact;
    return value >= least && !(most && value > *most) && but.count(value) == 0;
  }
};
/// "dp ≥ 2", "2 ≤ dp ≤ 63"
std::string range_text(const std::string& name, int least, const std::optional<int>& most);

/// Sizes that lie in a bound in each dimension.
using Box = std::vector<Bound>;

bool holds(const Box& box, const Point& point);

/// A grid of points of which some are wrong. `values` lists the sizes of each dimension, ascending; the last of each
/// stands for all larger ones, and those in `wide` for all up to the next one.
struct WrongPoints {
  std::vector<std::vector<int>> values;
  std::vector<Point> known;
  std::set<Point> wrong;
  std::vector<std::set<int>> wide = {};  ///< by dimension; none at all: no size stands for others
  std::vector<Point> open = {};          ///< of the grid, those of which nothing is known: no box holds one

  /// Whether everything that is known in the box is wrong.
  bool all_wrong(const Box& box) const;
};

/// As few boxes as a greedy choice finds that hold all that the given ones hold, each of those made as wide as it can
/// be while everything in it is wrong and nothing is open. `all_wrong` holds for each that is given.
std::vector<Box> cover(const WrongPoints& points, const std::vector<Box>& boxes);

/// "pp ≥ 2 and dp = 1"; "every size" for a box that holds all of `points`.
std::string describe(const Box& box, const std::vector<std::string>& names, const WrongPoints& points);

}  // namespace lockstep::parametric
