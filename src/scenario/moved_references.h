// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/json.h"

namespace lockstep::scenario {

/// The document of the scenario file `file` for a file in another folder: paths of frameworks and models, which are
/// relative to a scenario, lead to the same files from there. Throws InputError where a scenario in `folder` may not
/// name one of them (allowed_files.h).
Json with_references_from(const Json& document, const std::string& file, const std::filesystem::path& folder);

}  // namespace lockstep::scenario
