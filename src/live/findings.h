// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/live/verify_cell.h"

namespace lockstep::live {

/// Moves what was found of pieces into the result, and groups what is not right of it, and of its comparison with a
/// reference, into findings: pieces that are wrong, or undecided, for the same reason are one.
void find_mistakes(std::vector<PieceFinding> of_pieces, VerifyResult& result);

}  // namespace lockstep::live
