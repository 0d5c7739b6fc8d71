// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/live/findings.h"
#include "src/live/region_overlaps.h"
#include "src/symbolic/program_forms.h"

namespace lockstep::live {

/// What is said of the norms by which gradients are clipped in an optimizer step.
struct NormFindings {
  std::vector<VerifyFinding> wrong;  ///< about no piece
  std::vector<std::string> notes;    ///< sentences: of norms that are right, and of those that nobody can follow
  std::vector<std::string> gaps;     ///< sentences: of clippings that one device may do otherwise
};

/// Notes as not known (CapturedRun::unknowns) what some ranks clip by a norm, in a step, and others that step with it
/// too do not.
void find_clipped_by_some(Extraction& extraction);

/// Holds the clippings of a step against one device. Norms of several ranks are one clipping where they clip the same
/// parameters, or count squares of what the other clips: each should be the sum of the squares of every element of
/// every parameter that some rank clips by it, each once.
NormFindings norm_findings(const Extraction& extraction, symbolic::ProgramForms& forms, RegionOverlaps& overlaps,
                           int step);

}  // namespace lockstep::live
