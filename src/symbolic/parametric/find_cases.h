// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/symbolic/parametric/cases.h"
#include "src/symbolic/parametric/layouts.h"

namespace lockstep::parametric {

/// The cases into which the open sizes fall, each with the classes of its parameters taken through the schedule.
/// `snapshots`: and what they hold after each step. Throws NeedsUnrolling where the number of micro-batches is open and
/// must be given.
std::vector<Case> find_cases(const Layouts& layouts, bool snapshots);

}  // namespace lockstep::parametric
