// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/check.h"

namespace lockstep {

/// What the engines of `result` say differently about values, with the command that replays it;
/// "" where they agree or one of them did not run. Counts and ownership are the symbolic engine's
/// alone.
std::string find_disagreement(const CheckResult& result, const CheckOptions& options);

}  // namespace lockstep
