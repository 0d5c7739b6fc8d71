// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "src/symbolic/parametric/class_run.h"

namespace lockstep::parametric {

/// A place where something is wrong at given sizes.
struct Example {
  const Cell* cell = nullptr;
  int logical = 0;
};

/// Whether what a class finds wrong exists at the sizes of a schedule: whether there are ranks, contributors and elements
/// that are related so, and whether the value is wrong there. `target` is the schedule that the class went through, or
/// the same scenario at other sizes for which the class was left open.
class Evaluation {
 public:
  Evaluation(const World& world, const World& target, const ClassResult& result);

  /// Throws OutOfReach where that cannot be seen.
  std::optional<Example> example(const Cell& cell);

 private:
  using Coordinates = std::vector<int>;  ///< by level
  /// Coordinates of each owner of some elements of the parameter.
  using Owners = std::vector<Coordinates>;
  const std::set<Owners>& owners(int logical);
  void add_owners(int logical, int piece, std::set<Owners>& found);
  bool depends_on_owners(const Cell& cell) const;
  bool exists(const Cell& cell, const Owners* owners);
  bool wrong(const Cell& cell, const std::vector<std::vector<int>>& contributors);
  int coordinate(int level, int constant) const;

  const World& world_;
  const World& target_;
  const ClassResult& result_;
  std::map<int, std::set<Owners>> owners_;
};

}  // namespace lockstep::parametric
