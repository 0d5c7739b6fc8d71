// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "src/live/extraction.h"
#include "src/live/reference.h"
#include "src/live/verify_cell.h"

namespace lockstep::live {

/// verify_run() of a run that was read already, which must outlive the call.
VerifyResult verify(const CapturedRun& run, const VerifyOptions& options);
/// The same of an extraction: coefficients are exact, and nothing is measured.
VerifyResult verify(const Extraction& extraction, const VerifyOptions& options);

/// By parameter and piece.
using Cells = std::map<std::pair<int, int>, Cell>;
/// By optimizer step.
using CellsOfSteps = std::map<int, Cells>;

/// What verify() knows when all pieces are verified.
struct VerifiedRun {
  const CapturedRun& run;
  SketchFiles& files;
  const RunFormulas& formulas;
  const VerifyOptions& options;
  const std::vector<char>& chosen;  ///< by parameter: whether it is looked at
  const std::vector<int>& steps;    ///< that are looked at, ascending
  const CellsOfSteps& cells;
  const std::map<int, Expected>& expected;  ///< by optimizer step
};

/// Compares the first optimizer step that both runs have whole with the reference (after it, weights differ by rounding
/// at least): fills in `result.reference`, says of the pieces whether it is the local backward or the
/// synchronization that is wrong, and adds notes and gaps.
void compare_to_reference(const VerifiedRun& run, ReferenceRun& reference, std::vector<PieceFinding>& findings,
                          VerifyResult& result);

}  // namespace lockstep::live
