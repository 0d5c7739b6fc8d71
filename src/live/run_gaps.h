// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/live/captured_run.h"

namespace lockstep::live {

/// Finds the steps of a run that was read, and what of it is missing: fills in all of CapturedRun that says so. Throws
/// InputError where there are more micro-batches than can be counted.
void find_gaps(CapturedRun& run);

/// What the captures say that they do not know of these steps (ascending) and parameters (not 0 in `chosen`);
/// sentences.
std::vector<std::string> told_gaps(const CapturedRun& run, const std::vector<int>& steps,
                                   const std::vector<char>& chosen);

}  // namespace lockstep::live
