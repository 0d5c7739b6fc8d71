// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/symbolic/parametric/classes.h"
#include "src/symbolic/parametric/layouts.h"

namespace lockstep::parametric {

/// On which stages the parameters of a model lie at the layouts of a case that are looked at. With more stages a layer
/// comes to lie on others; where the steps do not do the same on all of them, that must have been seen as well.
class StagesSeen {
 public:
  /// A layout, of one schedule or of two with the same parameters in the same places.
  void add(const std::vector<const StepSelections*>& sides);
  /// Throws OutOfReach where parameters of one kind move with the number of stages, and were not seen on all.
  void require_all(const Layouts& layouts) const;

 private:
  struct Kind {
    std::string step;  ///< one that tells stages apart
    std::set<std::string> stages, parameters;
  };
  std::map<std::string, Kind> kinds_;
  std::set<std::string> stages_;
  std::map<std::string, std::set<std::string>> ends_;  ///< by parameter: "first" or "last" alone where it stays there
  int most_ = 1;                                       ///< stages
};

}  // namespace lockstep::parametric
