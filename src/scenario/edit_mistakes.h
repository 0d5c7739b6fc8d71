// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "lockstep/scenario.h"

namespace lockstep::scenario {

/// What a scenario with some of its edits left out is refused for.
using MistakesOf = std::function<std::vector<Diagnostic>(const WhatIf& fewer)>;

/// `mistakes` of a document, each that one of its edits of the schedule causes with the place of that edit's key and
/// with the step or parameter that it changes: the step as written is right. It is the edit without which, and without
/// those behind it, the mistake is not there; where other mistakes of these fewer edits leave that open, one without
/// which alone it is not there, or none. Asks `mistakes_of` for fewer edits.
std::vector<Diagnostic> at_their_edits(const std::vector<Diagnostic>& mistakes, const Json& document,
                                       const MistakesOf& mistakes_of);

}  // namespace lockstep::scenario
