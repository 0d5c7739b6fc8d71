// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "src/symbolic/parametric/each_case.h"

namespace lockstep::parametric {

/// The cases into which the open sizes fall, each with the classes of its parameters taken through the schedule.
/// `record`: and what they hold after each step. Throws NeedsUnrolling where the number of micro-batches is open and
/// must be given.
std::vector<Case> find_cases(const Layouts& layouts, bool record);

/// Takes a case through something. Where that is out of reach, or a cut does not come out even at some size, the case
/// has no representatives, and a limit that says so, with the
/// condition on which it depends if there is one.
void take_as_far_as_can_be(Case& one, const std::function<void()>& enter);
/// The steps as text. Two layouts of one case must have the same.
std::string steps_text(const Scenario& scenario);

}  // namespace lockstep::parametric
