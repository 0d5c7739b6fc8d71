// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "lockstep/schedule.h"

namespace lockstep::parametric {

/// Coordinates that a step singles out.
struct NamedCoordinates {
  std::optional<Axis> axis;  ///< none: positions in the step's group
  std::vector<int> coordinates;
  bool compared = false;  ///< with the rank's own in an expression, by whatever comparison
};

/// Calls `visit` for all that a step and the steps inside it single out.
void visit_named(const Step& step, const std::function<void(const NamedCoordinates&)>& visit);

}  // namespace lockstep::parametric
