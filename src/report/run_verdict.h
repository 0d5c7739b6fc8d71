// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "lockstep/live.h"

namespace lockstep {

/// "match", "mismatch", "undecided": the words of check, where it has them.
inline std::string_view verdict_word(VerifiedPiece::Verdict verdict) {
  return verdict == VerifiedPiece::Verdict::right   ? "match"
         : verdict == VerifiedPiece::Verdict::wrong ? "mismatch"
                                                    : "undecided";
}

}  // namespace lockstep
