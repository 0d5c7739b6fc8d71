// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/live/recorded_schedule.h"

namespace lockstep::live {

class Evidence;

/// Fills in how each parameter is cut: with a geometry after which each rank's optimizer owns exactly what it got in
/// `verified`, where one of those that are tried is such; else as FSDP2 cuts. `recording` has everything but its cuts,
/// and `evidence` is its run's. Complexity: about twenty walks through the schedule, and a few times as many where what
/// is tried keeps it from its end.
void find_cuts(Recording& recording, const VerifyResult& verified, Evidence& evidence);

}  // namespace lockstep::live
