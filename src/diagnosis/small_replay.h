// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "lockstep/check.h"

namespace lockstep::diagnosis {

/// Of a layout whose ranks were not replayed: the same file at sizes of 2 or 3, replayed, with the same verdict, and
/// the same parameters wrong (by folded name). Nothing where ranks were replayed, or at no such sizes that is so.
/// Its blame is left out: the large layout has one. Complexity: a few replays of small layouts.
std::optional<CheckResult> small_replay(const CheckResult& result);

}  // namespace lockstep::diagnosis
