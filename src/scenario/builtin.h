// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace lockstep::scenario {

/// Texts of frameworks/*.jsonc and models/*.jsonc by name. Defined in a source that
/// cmake/embed.cmake generates.
const std::map<std::string, std::string>& embedded_frameworks();
const std::map<std::string, std::string>& embedded_models();

}  // namespace lockstep::scenario
