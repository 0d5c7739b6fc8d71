// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/live/captured_run.h"
#include "src/live/verify_cell.h"

namespace lockstep::live {

/// Parameters that stages of a pipeline hold under one name, and that begin with other weights or have other shapes,
/// are different ones: they get names of their own, "pp1.weight", and a note says so. Not where a collective between
/// stages carries their gradients. To be called before the ranks' parameters are put together.
void name_stages_apart(CapturedRun& run);

/// Finds out along which axes ranks begin with different weights of one parameter, or with the same, where the run says
/// it (CapturedRun::apart, alike, perhaps_tied), and what that says of the run as a whole.
void compare_start_weights(CapturedRun& run);

/// Of a parameter of which ranks with different data begin with different weights, nothing is wrong with a result that
/// has contributions of ranks with the same weights alone: they may hold different parts of it, or experts.
void doubt_different_weights(const CapturedRun& run, std::vector<PieceFinding>& findings);

}  // namespace lockstep::live
