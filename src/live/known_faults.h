// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/live/captured_run.h"

namespace lockstep::live {

/// Steps at fault that are known without a schedule of the whole run: gradients that nobody zeroes, such as no
/// collective carries and no optimizer gets, and such as some ranks alone scale. Empty where something else is wrong as
/// well. Complexity: linear in the results and in the run's collectives.
std::vector<StepAtFault> known_faults(const CapturedRun& run, const VerifyResult& result);

}  // namespace lockstep::live
