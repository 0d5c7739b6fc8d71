// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/live/captured_run.h"

namespace lockstep::live {

/// Finds the steps of a run that was read, and what of it is missing: fills in all of CapturedRun that says so. Throws
/// InputError where there are more micro-batches than can be counted.
void find_gaps(CapturedRun& run);

/// The first of a run's optimizer steps of which a rank's record may lack something. Where the rank ended, that is the
/// first that others captured and it did not, or none: the largest number. Where it died, the first that it did not
/// finish, and the one before unless it had begun another: lines of a step may follow that of its end.
int untold_from(const RankRecord& rank, const std::vector<int>& steps);

/// What the captures say that they do not know of these steps (ascending) and parameters (not 0 in `chosen`);
/// sentences.
std::vector<std::string> gap_sentences(const CapturedRun& run, const std::vector<int>& steps,
                                       const std::vector<char>& chosen);

/// A sentence about chosen parameters whose optimizers step in none of these steps; "" where there are none.
std::string waiting_sentence(const CapturedRun& run, const std::vector<int>& steps, const std::vector<char>& chosen);

}  // namespace lockstep::live
