// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/check.h"
#include "lockstep/mistake.h"
#include "src/report/sections.h"

namespace lockstep::report {

/// Of what kind the wrong values of a section are, by all that is wrong in it and not by the first rank that happens to
/// be: the same for any number of ranks. `step` is the step at fault, "" where none is known. wrong_values where there
/// are no formulas.
Mistake rule_of_values(const CheckResult& result, const Section& section, const std::string& step);

}  // namespace lockstep::report
