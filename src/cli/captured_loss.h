// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "lockstep/live.h"
#include "src/cli/options.h"

namespace lockstep::cli {

/// --loss, of the commands that read captured runs; `otherwise`: what holds where it is not given, or what it replaces.
OptionRow loss_row(std::string* loss, const std::string& otherwise = ", in the place of what the run says");
/// What was given with it; nothing for "". Throws InputError for what is no loss.
std::optional<CapturedLoss> given_loss(const std::string& loss);

}  // namespace lockstep::cli
