// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/diagnostic.h"

namespace lockstep {

/// The text with stars in place of everything that may be a secret (tokens, paths, host names): what remains are keys,
/// flags, names of variables, numbers, booleans and punctuation. As long as the text, byte for byte.
std::string redacted(std::string_view text);

/// The diagnostics with redacted sources.
std::vector<Diagnostic> redacted(std::vector<Diagnostic> diagnostics);

}  // namespace lockstep
