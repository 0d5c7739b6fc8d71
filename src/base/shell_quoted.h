// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// A word as bash, zsh and a POSIX 2024 sh read it back, on one line: as it is where nothing in it means anything to
/// them, in single quotes where something does, as $'…' where it holds control characters or bytes that are no UTF-8.
std::string shell_quoted(const std::string& word);

}  // namespace lockstep
