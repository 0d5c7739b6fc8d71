// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace lockstep::importers {

/// Texts of src/importers/*.jsonc by name. Defined in a source that cmake/embed.cmake generates.
const std::map<std::string, std::string>& embedded_tables();

}  // namespace lockstep::importers
