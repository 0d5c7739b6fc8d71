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

/// Writes the case's file anew, with what was imported as what is expected (LOCKSTEP_UPDATE=1): to be read before it is
/// believed.
void update(const Case& one, const Imported& imported);

/// Whether this lockstep reads the syntax of a file of that name.
bool is_readable(const std::string& name);

/// All cases whose files can be read, sorted.
std::vector<Case> all_cases();

}  // namespace lockstep::importers
