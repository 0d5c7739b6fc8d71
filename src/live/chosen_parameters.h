// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/live/captured_run.h"

namespace lockstep::live {

/// By parameter of a run, whether the selectors choose it; all where there are none. Throws InputError where one that
/// chooses fits none.
std::vector<char> chosen_parameters(const CapturedRun& run, const Selectors& selectors);

}  // namespace lockstep::live
