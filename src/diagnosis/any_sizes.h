// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "lockstep/check.h"

namespace lockstep::diagnosis {

/// A scenario of given sizes in place of one with sizes "any": the smallest that is wrong, else a small one,
/// with a note that says what was proved. Null where that is not decided: `result.errors` then says why.
std::shared_ptr<const Scenario> shown_for_any(const Scenario& scenario, CheckResult& result);

}  // namespace lockstep::diagnosis
