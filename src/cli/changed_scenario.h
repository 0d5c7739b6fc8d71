// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/scenario.h"

namespace lockstep::cli {

/// A scenario file read with some of its keys changed: each change is KEY=VALUE. KEY names members from the top of the
/// file, with dots between them ("layout.dp"), and elements of lists by their numbers ("schedule.steps.1.by"); one
/// without dots is an option of the framework, and "framework" is "schedule.framework". VALUE is JSON; what is none is
/// a string. Throws InputError, with the mistake's place in the file, or, where the changes bring it about, in the file
/// as changed.
Scenario read_changed_scenario(const std::string& file, const std::vector<std::string>& changes);

}  // namespace lockstep::cli
