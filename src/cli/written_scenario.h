// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/check.h"

namespace lockstep::cli {

/// What `lockstep check` would say of a scenario that is about to be written, quickly: replayed by formula alone.
CheckResult quick_check(const std::string& file, const std::string& text);

/// Why the text would be no scenario that is decided; "" where it is one.
std::string why_no_scenario(const std::string& file, const std::string& text);

/// The place from which a scenario that is written to `path` finds its framework and model files. A device or a pipe
/// has none: there it is what would stand beside `file`.
std::string scenario_at(const std::string& path, const std::string& file);

/// Throws InputError where what `show --resolved` would print of the scenario has another verdict. That may be where
/// sizes are "any": what a framework's rules and defaults make of a size is not in plain steps.
void want_same_verdict(const Scenario& scenario);

}  // namespace lockstep::cli
