// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/intervals.h"
#include "src/schedule/calls.h"
#include "src/symbolic/parametric/class_run.h"

namespace lockstep::parametric {

using Coordinates = std::vector<int>;  ///< by level; -1 for any, or where there is none

/// Elements of a piece, one after the other, that have the same owners.
struct Stretch {
  Interval elements;
  std::vector<Coordinates> owners;  ///< by owner
};

/// Who owns what of the parameters of a class, at the sizes of a schedule: read off how its steps cut.
class Stretches {
 public:
  /// `target` is the schedule that the class went through, or the same scenario at other sizes for which the class was
  /// left open. All must outlive it.
  Stretches(const World& world, const World& target, const ClassResult& result);

  /// Of one piece, in order. Throws OutOfReach where that is not followed.
  const std::vector<Stretch>& of(int logical, int piece);
  /// A coordinate that is singled out, at the sizes of the target: the last stays the last.
  int coordinate(int level, int constant) const;

 private:
  std::vector<Cut> cuts(int logical, int piece);

  const World& world_;
  const World& target_;
  const ClassResult& result_;
  std::deque<std::vector<int>> selections_;
  std::optional<Calls> calls_;  ///< made when it is first asked for
  std::map<std::pair<int, int>, std::vector<Stretch>> known_;
};

}  // namespace lockstep::parametric
