// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/json.h"

namespace lockstep::scenario {

/// Whether what stands at `path`, the names of members and the numbers of elements from the top of a scenario, is a
/// text whatever it looks like: a name, a title, an option of the framework or a size of the model whose type says so.
/// `folder`: where the scenario lies.
bool holds_text(const Json& document, const std::filesystem::path& folder, const std::vector<std::string>& path);

}  // namespace lockstep::scenario
