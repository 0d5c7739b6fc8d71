// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/cli/command.h"

namespace lockstep::cli {

/// The manual page of a command, lockstep-NAME(1), in the macros of man(7), which groff and mandoc read.
std::string man_page(const Command& command);
/// lockstep(1): all commands, the exit statuses, and the environment.
std::string man_page(const std::vector<Command>& commands);

}  // namespace lockstep::cli
