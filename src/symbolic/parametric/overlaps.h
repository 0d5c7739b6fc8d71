// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/intervals.h"
#include "lockstep/schedule.h"

namespace lockstep::parametric {

/// Goes through the stretches in which several cuts of the same elements overlap, in order, without listing them.
class Overlaps {
 public:
  /// Stretches that touch `elements`. `cuts` must outlive it; their lengths are positive.
  Overlaps(const std::vector<Cut>& cuts, std::int64_t numel);

  bool done() const { return begin_ >= numel_; }
  /// Elements that belong to one member of every cut.
  Interval elements() const { return {begin_, end_}; }
  const std::vector<std::int64_t>& members() const { return members_; }  ///< by cut
  void next() { go_to(end_); }
  /// To the stretch that this element, which is not behind the present one, lies in.
  void skip_to(std::int64_t element);

 private:
  void go_to(std::int64_t element);

  const std::vector<Cut>& cuts_;
  std::int64_t numel_;
  std::int64_t begin_ = 0, end_ = 0;
  std::vector<std::int64_t> members_;
};

/// What is asked of the members of some cuts: which of these are one, and which are one of these numbers.
struct Comparison {
  std::vector<int> cuts;
  std::vector<std::int64_t> members;
};

/// Parts of [0, numel) in which every combination of answers that there is comes up, and comes up first. How many
/// stretches lie in them does not depend on how many members the cuts have, but for where four or more cuts are
/// compared: then it is one part, everything. The comparisons have no cut in common. Complexity: the square of the
/// number of cuts.
Intervals telling(const std::vector<Cut>& cuts, const std::vector<Comparison>& comparisons, std::int64_t numel);

}  // namespace lockstep::parametric
