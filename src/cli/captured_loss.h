// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "lockstep/live.h"
#include "src/cli/options.h"

namespace lockstep::cli {

/// --loss, of the commands that read captured runs.
OptionRow loss_row(std::string* loss);
/// What was given with it; nothing for "". Throws InputError for what is no loss.
std::optional<CapturedLoss> given_loss(const std::string& loss);

}  // namespace lockstep::cli
