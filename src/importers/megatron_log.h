// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/importers/settings.h"

namespace lockstep::importers {

/// Whether a text holds the block of resolved arguments that Megatron-LM prints at start.
bool has_megatron_arguments_block(std::string_view text);

/// The arguments of the last such block: "name ....... value" in each line, behind whatever a launcher puts before it.
/// Values are as Python prints them. `notes`: a sentence where the block before it says something else.
Settings read_megatron_log(const std::shared_ptr<const Source>& source, std::vector<std::string>& notes,
                           Diagnostics& diagnostics);

}  // namespace lockstep::importers
