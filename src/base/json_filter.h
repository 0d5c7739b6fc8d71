// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/diagnostic.h"

namespace lockstep {

/// The text of `source` with its comments and trailing commas turned into spaces: plain JSON in
/// which every other byte keeps its place. Nothing, and one diagnostic, where the file is no text
/// (bytes that are not UTF-8, NUL, a byte order mark), holds no value or a comment is not closed.
std::optional<std::string> plain_json_text(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics);

}  // namespace lockstep
