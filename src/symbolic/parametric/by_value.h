// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "src/symbolic/parametric/bits.h"
#include "src/symbolic/parametric/boxes.h"

namespace lockstep::parametric {

// Which points lie in which boxes, where there are a thousand boxes and a hundred thousand points: in each dimension
// these have few values, and those of one value are looked up together.

/// Points by number.
class PointsByValue {
 public:
  explicit PointsByValue(const std::vector<Point>& points);
  Bits in(const Box& box) const;
  /// By value of a dimension: who has it.
  const std::map<int, Bits>& values(std::size_t dimension) const { return values_[dimension]; }

 private:
  const Bits& in(std::size_t dimension, const Bound& bound) const;

  std::size_t size_;
  std::vector<std::map<int, Bits>> values_;
  mutable std::vector<std::map<Bound, Bits>> known_;  // boxes have few different bounds
};

/// Boxes by number.
class BoxesByValue {
 public:
  explicit BoxesByValue(std::vector<Box> boxes) : boxes_(std::move(boxes)) {}
  /// Those that hold a point.
  Bits at(const Point& point) const;

 private:
  std::vector<Box> boxes_;
  mutable std::vector<std::map<int, Bits>> known_;  // by dimension and value
};

}  // namespace lockstep::parametric
