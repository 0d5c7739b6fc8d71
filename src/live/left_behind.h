// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/live/captured_run.h"
#include "src/live/extraction.h"

namespace lockstep::live {

/// Ranks whose backward yields a parameter's gradient and whose optimizer never gets it, though others' do, and to
/// which no recorded broadcast or all-gather could bring the new values: sentences. Steps of the run, ascending. Empty
/// where the run has no collectives recorded, or is not complete. Complexity: linear in the run's events.
std::vector<std::string> ranks_left_behind(const CapturedRun& run, const std::vector<int>& steps);
/// The same of an extraction.
std::vector<std::string> ranks_left_behind(const Extraction& extraction, const std::vector<int>& steps);

}  // namespace lockstep::live
