// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "src/live/extraction.h"

namespace lockstep::live {

/// Elements of one region that another has as well: of the first's own order [elements), in the other's `move` further
/// on.
struct Overlap {
  Interval elements;
  std::int64_t move = 0;
};

/// Which elements of parameters two regions have in common.
class RegionOverlaps {
 public:
  /// `extraction` must outlive it.
  explicit RegionOverlaps(const Extraction& extraction) : extraction_(extraction) {}

  /// By ascending elements. Nothing where boxes fall into so many stretches of indices that they are not compared.
  /// Complexity: constant where both regions are stretches of indices or one region; else linear in the stretches that
  /// they fall into, once for two regions.
  const std::vector<Overlap>* of(int region, int other);

 private:
  struct Known {
    bool compared = true;
    std::vector<Overlap> overlaps;
  };
  Known compare(const Region& one, const Region& other) const;

  const Extraction& extraction_;
  std::map<std::pair<int, int>, Known> known_;
  std::vector<Overlap> simple_;
};

/// "[0, 8)" of the elements [first, first + count) of a region in its own order; "" where they are the whole parameter.
std::string elements_words(const DeclaredParameter& parameter, const Region& region, std::int64_t first,
                           std::int64_t count);

}  // namespace lockstep::live
