// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "src/symbolic/parametric/cases.h"
#include "src/symbolic/parametric/layouts.h"

namespace lockstep::parametric {

/// Calls `visit` for layouts at which a reason applies, those with the fewest ranks first, until it returns false.
void each_suspect(const std::vector<Reason>& reasons, const Sizes& base, const std::vector<Axis>& axes,
                  bool micro_batches, const std::function<bool(const Sizes&)>& visit);

/// What the symbolic engine, which replays every rank, finds wrong with a scenario at its sizes; nothing where it is
/// right.
std::optional<Proof::Counterexample> replay(const Scenario& scenario, const Sizes& sizes);

/// The layout with the fewest ranks, and of these the fewest micro-batches, at which one of the reasons applies and the
/// symbolic engine, which replays every rank, finds the scenario wrong. Nothing where none of the first 40 layouts at
/// which a reason applies is wrong: what is wrong may depend on how elements are cut. Those that were replayed, and are
/// right, are added to `right`.
std::optional<Proof::Counterexample> smallest_wrong(const Layouts& layouts, const std::vector<Reason>& reasons,
                                                    std::vector<Sizes>& right);

}  // namespace lockstep::parametric
