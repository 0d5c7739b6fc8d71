// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/extraction_comparison.h"
#include "src/live/extraction.h"

namespace lockstep::live {

/// Adds the calls of an extraction, by function and size of the process group, to those that are there: as the new
/// one's or the old one's.
void count_calls(const Extraction& extraction, bool is_new, std::vector<CallDifference>& calls);

/// The calls of a rank through which what its optimizer reads of a parameter in a step has come, in the rank's order:
/// "all_reduce at ddp.py:12 in forward".
std::vector<std::string> calls_behind(const Extraction& extraction, int parameter, int step, int rank);

}  // namespace lockstep::live
