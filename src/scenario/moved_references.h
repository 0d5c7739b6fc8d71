// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/json.h"

namespace lockstep::scenario {

/// A path in a scenario, as it is from another folder.
struct MovedReference {
  std::string part, key;  ///< "schedule" and "framework"; no part: a key of the scenario itself
  Json path;              ///< with the place of the old one
};

/// What has to be another path in a copy of the scenario file `file` in another folder: those of frameworks, models and
/// the schema, which are relative to a scenario. Throws InputError where a scenario in `folder` may not name one of
/// these frameworks and models (allowed_files.h).
std::vector<MovedReference> moved_references(const Json& document, const std::string& file,
                                             const std::filesystem::path& folder);

/// The document with these paths.
Json with_references_from(const Json& document, const std::string& file, const std::filesystem::path& folder);

}  // namespace lockstep::scenario
