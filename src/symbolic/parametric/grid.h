// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/prove.h"
#include "src/symbolic/parametric/boxes.h"

namespace lockstep::parametric {

/// What a statement calls things: "wrong for dp ≥ 2, wherever its cuts give an element these owners".
struct StatementWords {
  std::string right = "right", wrong = "wrong", cuts = "its cuts give";
};

/// Sizes at which a statement is looked at.
struct Grid {
  std::vector<Axis> axes;
  bool micro_batches = false;
  std::vector<std::vector<int>> values;  ///< by dimension, ascending
  std::vector<std::set<int>> wide;       ///< by dimension: of these the ones that stand for larger ones, too
  std::vector<Point> known;              ///< of these, and others that matter, those that are decided
  std::vector<Point> open;               ///< that were not followed, and are not known to be refused
  StatementWords words;
  bool is_thinned = false;  ///< sizes were left out, because there are too many

  std::size_t dimensions() const { return axes.size() + (micro_batches ? 1U : 0U); }
  std::string name(std::size_t i) const { return i < axes.size() ? std::string(name_of(axes[i])) : "micro_batches"; }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < dimensions(); ++i) all.push_back(name(i));
    return all;
  }
  Sizes sizes(const Point& point) const {
    Sizes result;
    for (std::size_t i = 0; i < axes.size(); ++i) result.axes[axes[i]] = point[i];
    if (micro_batches) result.micro_batches = point.back();
    return result;
  }
  Point point(const Sizes& sizes) const {
    Point result;
    for (const Axis axis : axes) result.push_back(sizes.axes.at(axis));
    if (micro_batches) result.push_back(*sizes.micro_batches);
    return result;
  }
  std::vector<Point> points() const {
    std::vector<Point> all = {{}};
    for (const std::vector<int>& list : values) {
      std::vector<Point> longer;
      for (const Point& point : all) {
        for (const int value : list) {
          longer.push_back(point);
          longer.back().push_back(value);
        }
      }
      all = std::move(longer);
    }
    return all;
  }
};

}  // namespace lockstep::parametric
