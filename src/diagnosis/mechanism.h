// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/check.h"
#include "src/diagnosis/candidates.h"

namespace lockstep {

/// Why the step that an edit changes, removes or adds is at fault, with the numbers in it: "averages over tp (2 ranks)
/// what should be summed: rank 0 gets (g0+g1)/2 where g0 + g1 is right". Without a full stop.
std::string mechanism_of(const CheckResult& result, const Candidate& edit);

/// Who would not have noticed: an optimizer that divides by the gradient's size, a clip by the norm, a tolerance. Full
/// sentences.
std::vector<std::string> who_would_not_notice(const CheckResult& result);

}  // namespace lockstep
