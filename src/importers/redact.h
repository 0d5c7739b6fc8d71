// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/diagnostic.h"

namespace lockstep::importers {

/// The text with stars in place of everything that may be a secret (tokens, paths, host names): what remains are keys,
/// flags, names of variables, numbers, booleans and punctuation. As long as the text, byte for byte.
std::string redacted(std::string_view text);

/// A key for a message: with stars where it holds what no key of a framework does, such as those of a path or an
/// address.
std::string shown_key(std::string_view key);

/// Whether a word behind a dollar sign is written as variables of the environment are, in capitals: every other one may
/// be a part of a password.
bool is_environment_name(std::string_view word);

/// The diagnostics with redacted sources.
std::vector<Diagnostic> redacted(std::vector<Diagnostic> diagnostics);

}  // namespace lockstep::importers
