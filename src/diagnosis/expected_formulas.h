// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/check.h"
#include "lockstep/scenario.h"

namespace lockstep::diagnosis {

/// The part of `expect` that compares formulas, as algebra; adds a sentence for each that does not
/// hold. The symbolic engine must have run.
void check_formulas(const CheckResult& result, const Expect& expect, std::vector<std::string>& unmet);

}  // namespace lockstep::diagnosis
