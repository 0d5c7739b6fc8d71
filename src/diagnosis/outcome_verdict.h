// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/timeline.h"
#include "lockstep/verdict.h"

namespace lockstep::diagnosis {

/// What the walk over the ranks says by itself; `match` where it came to its end.
Verdict verdict_of(Outcome::Kind kind);

/// "complete", or the name of its verdict.
std::string_view name_of(Outcome::Kind kind);

}  // namespace lockstep::diagnosis
