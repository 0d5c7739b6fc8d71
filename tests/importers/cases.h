// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/importer.h"

namespace lockstep::importers {

/// A file of tests/importers/cases: a request, and what must come of it.
struct Case {
  std::filesystem::path file;
  ImportRequest request;
  Json expected;  ///< scenario keys, `used` and `ignored` (some of the keys), `assumed` (parts of sentences), `verdict`
};

/// All cases, sorted by their files.
std::vector<Case> all_cases();

}  // namespace lockstep::importers
