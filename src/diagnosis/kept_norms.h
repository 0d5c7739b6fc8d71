// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "lockstep/schedule.h"

namespace lockstep::diagnosis {

/// Whether every gradient that a norm counts or a clip changes before is one of which the steps say that after, too.
bool says_norms(const Schedule& before, const Schedule& after);

/// Whether in each optimizer step runs of `after` count and clip the parameters that runs of `before` do: on some rank,
/// for a rank that goes without where another does not is a mismatch. What a run that ends early does not come to is
/// not asked for. Walks every rank of both; throws InputError as walk() does.
bool runs_norms(const Schedule& before, const Schedule& after);

/// Both; none where steps say it and to walk every rank takes much (is_quickly_replayed()), or ends in a mistake.
std::optional<bool> keeps_norms(const Schedule& before, const Schedule& after);

}  // namespace lockstep::diagnosis
