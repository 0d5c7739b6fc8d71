// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/live/recorded_schedule.h"

namespace lockstep::live {

class Evidence;

/// How each parameter is cut, by parameter: with a geometry after which each rank's optimizer owns exactly what it got
/// in `verified`, where one of those that are tried is such; else as FSDP2 cuts. `recording` has everything but its
/// cuts, and `evidence` is its run's. Complexity: about twenty walks through the schedule.
std::vector<Cut> find_cuts(Recording recording, const VerifyResult& verified, Evidence& evidence);

}  // namespace lockstep::live
