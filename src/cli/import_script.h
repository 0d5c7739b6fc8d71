// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/importer.h"

namespace lockstep::cli {

/// import --run: runs the launch script and imports what it starts. `request` has its arguments and variables, and no
/// file. Throws InputError for what import_configuration() does, with what the script itself has said.
Imported import_script(const std::vector<std::string>& files, ImportRequest request);

}  // namespace lockstep::cli
