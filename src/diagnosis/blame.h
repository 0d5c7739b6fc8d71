// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/check.h"

namespace lockstep::diagnosis {

/// Searches for the smallest edits after which everything matches, the one that the first divergences name before
/// others, and fills in `blame`, `repairs` and `unnoticed` of a result that is wrong. Where no edit repairs it, `blame`
/// stays what blame_of() said.
void search_blame(CheckResult& result);

}  // namespace lockstep::diagnosis
