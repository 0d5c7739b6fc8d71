// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/live/verify_cell.h"

namespace lockstep::live {

/// Reductions that add up gradients of different elements, because their ranks hold different parts of a parameter.
struct MixedFaults {
  std::vector<StepAtFault> steps;  ///< each call of the program once
  bool all = false;                ///< nothing else is wrong
};

/// Those that results that are wrong went through. Where a part of a result is none of the recorded contributions, its
/// finding says so from then on. Complexity: linear in the run's events.
MixedFaults tell_mixed_parts(const CapturedRun& run, std::vector<PieceFinding>& findings);

}  // namespace lockstep::live
