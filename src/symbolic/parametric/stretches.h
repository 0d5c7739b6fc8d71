// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/intervals.h"
#include "src/schedule/calls.h"
#include "src/symbolic/parametric/class_run.h"
#include "src/symbolic/parametric/overlaps.h"

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

  /// Of one piece, in order: all of them, one for each slice. Throws OutOfReach where that is not followed.
  void visit(int logical, int piece, const std::function<void(const Stretch&)>& visitor);
  /// Of one piece, in order: the first of each kind. Those of a kind have the same owners and named coordinates in
  /// common, and those of the ranks that hold the piece, on each level. Throws OutOfReach.
  const std::vector<Stretch>& kinds(int logical, int piece);
  /// A coordinate that is singled out, at the sizes of the target: the last stays the last.
  int coordinate(int level, int constant) const;

 private:
  std::vector<Cut> cuts(int logical, int piece);
  /// Who owns a stretch, by the member of each cut.
  void write(const std::vector<std::int64_t>& members, std::vector<Coordinates>& owners) const;
  std::vector<std::vector<int>> named(int logical, int piece) const;
  Intervals telling(const std::vector<Cut>& cuts, const std::vector<std::vector<int>>& named, std::int64_t numel) const;

  const World& world_;
  const World& target_;
  const ClassResult& result_;
  std::optional<schedule::WalkMemory> memory_;
  std::optional<schedule::Calls> calls_;  ///< made when it is first asked for
  std::vector<std::vector<int>> levels_;  ///< by owner: the one that varies fastest first
  std::map<std::pair<int, int>, std::vector<Stretch>> kinds_;
};

}  // namespace lockstep::parametric
