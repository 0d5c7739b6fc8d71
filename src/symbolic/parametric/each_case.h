// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "src/symbolic/parametric/cases.h"
#include "src/symbolic/parametric/layouts.h"

namespace lockstep::parametric {

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
  /// The same sizes with a number of micro-batches that is allowed, if `takes` takes it.
  Sizes with_allowed_micro_batches(const Sizes& sizes, const std::function<bool(const Sizes&)>& takes) const;
};

/// Adds the cases into which the open sizes fall to `cases`, each once `enter` took it through something at some
/// layouts that belong to it, the first of which stands for all. A case that enter() gives a condition on which it
/// depends is cut in two where the answer changes, and both parts are entered in its place, as far as that helps. A
/// case that has a limit already is not entered. A case of which every size that is tried is refused has one, but for
/// those of which a scenario itself shows that it refuses all of their sizes: they are left out. Throws OverBudget;
/// what is in `cases` then stands.
void for_each_case(const OpenSizes& open, std::vector<Case>& cases,
                   const std::function<void(Case&, const std::vector<Sizes>&)>& enter);

}  // namespace lockstep::parametric
