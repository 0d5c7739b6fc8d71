// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/schedule.h"
#include "lockstep/timeline.h"
#include "lockstep/verdict.h"

namespace lockstep::diagnosis {

/// What the walk over the ranks says by itself; `match` where it came to its end.
Verdict verdict_of(Outcome::Kind kind);

/// What a replay by formula says of a schedule: what was reached first in time, a completed optimizer step with
/// something wrong or the end of the run. Throws InputError for a mistake that ranks meet.
Verdict replayed_verdict(const Schedule& schedule);

/// "complete", or the name of its verdict.
std::string_view name_of(Outcome::Kind kind);

}  // namespace lockstep::diagnosis
