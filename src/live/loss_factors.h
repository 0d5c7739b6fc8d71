// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/live.h"
#include "src/live/expected.h"

namespace lockstep::live {

/// What the expected coefficients of these optimizer steps owe to the factors that losses have: sentences, each once.
std::set<std::string> loss_factor_notes(const CapturedRun& run, const std::map<int, Expected>& expected,
                                        const std::vector<int>& steps);

/// The call of backward on losses with factors of which all results that are wrong have each rank's own, and nothing
/// else. Complexity: linear in the coefficients.
std::optional<StepAtFault> losses_at_fault(const CapturedRun& run, const std::map<int, Expected>& expected,
                                           const VerifyResult& result);

}  // namespace lockstep::live
