// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/live/recorded_schedule.h"

namespace lockstep::live {

class Evidence;

/// What ranks do by themselves, by parameter: the first way in which prediction and measurement meet; else the first in
/// which they are one factor apart; else the most usual. Where what comes out of reductions is kept is the same for all
/// that are cut together. `evidence` is of the recording's run.
/// Complexity: up to about thirty runs of the symbolic engine, for parameters that do not meet in the first.
std::vector<LocalSteps> find_local_steps(const Recording& recording, const VerifyResult& verified, Evidence& evidence);

}  // namespace lockstep::live
