// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace lockstep {

enum class Verdict { match, mismatch, deadlock, invalid_collective, race, error };
std::string_view name_of(Verdict verdict);

}  // namespace lockstep
