// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "lockstep/check.h"

namespace lockstep::diagnosis {

/// A scenario of given sizes in place of one with sizes "any": the smallest that is wrong, else a small one,
/// with a note that says what was proved. Null where that is not decided: `result.errors` then says why.
std::shared_ptr<const Scenario> shown_for_any(const Scenario& scenario, CheckResult& result);

/// What is found with two of everything that is "any" in the file of such a result: an edit that is right there speaks
/// of each of these sizes, and one that is right at the smallest wrong layout need not. Null where that layout is
/// refused or does not go wrong.
std::unique_ptr<CheckResult> at_two_of_any(const CheckResult& result);

}  // namespace lockstep::diagnosis
