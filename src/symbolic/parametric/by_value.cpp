// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/by_value.h"

#include <utility>

namespace lockstep::parametric {

PointsByValue::PointsByValue(const std::vector<Point>& points)
    : size_(points.size()), values_(points.empty() ? 0 : points.front().size()), known_(values_.size()) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t dimension = 0; dimension < values_.size(); ++dimension)
      values_[dimension].try_emplace(points[i][dimension], size_).first->second.insert(i);
  }
}

Bits PointsByValue::in(const Box& box) const {
  Bits inside(size_, true);
  for (std::size_t dimension = 0; dimension < values_.size(); ++dimension) inside.keep(in(dimension, box[dimension]));
  return inside;
}

const Bits& PointsByValue::in(std::size_t dimension, const Bound& bound) const {
  const auto [found, is_new] = known_[dimension].try_emplace(bound, size_);
  if (is_new) {
    for (const auto& [value, points] : values_[dimension]) {
      if (bound.holds(value)) found->second.add(points);
    }
  }
  return found->second;
}

Bits BoxesByValue::at(const Point& point) const {
  Bits all(boxes_.size(), true);
  known_.resize(point.size());
  for (std::size_t dimension = 0; dimension < point.size(); ++dimension) {
    const auto [found, is_new] = known_[dimension].try_emplace(point[dimension], boxes_.size());
    if (is_new) {
      for (std::size_t i = 0; i < boxes_.size(); ++i) {
        if (boxes_[i][dimension].holds(point[dimension])) found->second.insert(i);
      }
    }
    all.keep(found->second);
  }
  return all;
}

}  // namespace lockstep::parametric
