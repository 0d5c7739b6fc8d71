// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "lockstep/schedule.h"

namespace lockstep::parametric {

/// Coordinates that a schedule singles out.
struct NamedCoordinates {
  std::optional<Axis> axis;      ///< none: positions in the step's group
  std::vector<int> coordinates;  ///< none where it is compared with the first or the last
  bool compared = false;         ///< with the rank's own in an expression, by whatever comparison
  bool all = false;              ///< an expression calculates with the coordinate, so that no two need be alike
};

/// Calls `visit` for all that the steps and the loss single out at the sizes of the schedule.
void visit_named(const Schedule& schedule, const std::function<void(const NamedCoordinates&)>& visit);

/// Whether it is not the same for all stages what the steps, or the loss, do there; or this step alone.
bool tells_stages_apart(const Schedule& schedule);
bool tells_stages_apart(const Schedule& schedule, const Step& step);
bool loss_tells_stages_apart(const Schedule& schedule);

}  // namespace lockstep::parametric
