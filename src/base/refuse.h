// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "lockstep/diagnostic.h"

namespace lockstep {

/// The user's mistake in one sentence that says where it is: for what has no place in a file.
[[noreturn]] inline void refuse(std::string sentence) { throw InputError({Diagnostic{{}, std::move(sentence)}}); }

}  // namespace lockstep
