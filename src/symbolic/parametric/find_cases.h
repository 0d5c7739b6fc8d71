// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "src/symbolic/parametric/cases.h"
#include "src/symbolic/parametric/layouts.h"

namespace lockstep::parametric {

/// The cases into which the open sizes fall, each with the classes of its parameters taken through the schedule.
/// `record`: and what they hold after each step. Throws NeedsUnrolling where the number of micro-batches is open and
/// must be given.
std::vector<Case> find_cases(const Layouts& layouts, bool record);

/// Scenarios that are looked at together, at the same sizes.
struct OpenSizes {
  std::vector<const Layouts*> of;
  std::vector<Axis> axes;
  bool micro_batches = false;
  Sizes base;

  /// Whether none of them refuses these sizes.
  bool allow(const Sizes& sizes) const;
  /// base with this size, and another number of micro-batches where it needs one.
  Sizes with(Axis axis, int size) const;
  Sizes with_allowed_micro_batches(const Sizes& sizes) const;
};
/// Calls `enter` for each case, and some layouts that belong to it: the first stands for all. A case that has a limit
/// already is one that is not looked at. A case of which every size that is tried is refused has one, but for those of
/// which a scenario itself shows that it refuses all of their sizes: they are left out.
void for_each_case(const OpenSizes& open, const std::function<void(Case, const std::vector<Sizes>&)>& enter);
/// Takes a case through something. Where that is out of reach, or a cut does not come out even at some size, the case
/// has no specimens, and a limit that says so.
void take_as_far_as_can_be(Case& one, const std::function<void()>& enter);
/// The steps as text. Two layouts of one case must have the same.
std::string steps_text(const Scenario& scenario);

}  // namespace lockstep::parametric
