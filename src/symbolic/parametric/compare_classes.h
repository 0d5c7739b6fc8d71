// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/symbolic/parametric/class_run.h"

namespace lockstep::parametric {

/// A schedule at the sizes of a case.
struct SizedSchedule {
  World& world;
  const StepSelections& selections;
};

/// Throws OutOfReach where the two schedules' ranks are not numbered alike.
void check_levels(const World& before, const World& after);

/// Takes parameters of the same name through both schedules. The cells of the result, which is the old one's, are where
/// optimizers get another gradient from the new one: at the same owner, and where an element changes its owner, at
/// whoever owns it. Their value is the old one less the new one, or a multiple of that. Throws OutOfReach, and
/// NeedsUnrolling as run_class() does.
ClassResult compare_classes(const SizedSchedule& before, const Class& old_class, const SizedSchedule& after,
                            const Class& new_class);

}  // namespace lockstep::parametric
