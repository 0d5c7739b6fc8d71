// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/check.h"
#include "src/diagnosis/candidates.h"

namespace lockstep::diagnosis {

/// The step at fault where an edit repairs it, and why, with the numbers in it: "averages over tp (2 ranks) what should
/// be summed; rank 0 gets (g0+g1)/2 where g0 + g1 is right". It is the step that the edit changes or removes, or one
/// that leaves out what a new step would do, or the new one. The reason has no full stop.
Blame mechanism_of(const CheckResult& result, const Candidate& edit);

}  // namespace lockstep::diagnosis
