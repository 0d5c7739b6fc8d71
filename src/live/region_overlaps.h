// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
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

/// Elements [first, first + elements) of a region, in its own order.
struct RegionPart {
  int region = 0;
  std::int64_t first = 0, elements = 0;
  friend auto operator<=>(const RegionPart&, const RegionPart&) = default;
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
  struct Covered {
    Intervals elements;    ///< in the region's own order
    bool compared = true;  ///< with all others
  };
  /// What of a part these others have as well.
  Covered covered(const RegionPart& part, const std::vector<RegionPart>& others);
  /// By how many indices, in row-major order, element `to` of a region comes after element `from` of another.
  std::int64_t distance(int from_region, std::int64_t from, int to_region, std::int64_t to) const;

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
