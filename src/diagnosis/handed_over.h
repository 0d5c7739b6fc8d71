// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "lockstep/symbolic.h"

namespace lockstep::diagnosis {

/// What every rank hands to its optimizer, of one optimizer step.
struct HandedOver {
  using Piece = SymbolicEngine::Content;
  /// By rank and buffer: what it owns, ascending.
  std::vector<std::vector<std::vector<Piece>>> pieces;
};

/// A schedule replayed symbolically, with what it hands over in each optimizer step that it completes.
struct Replayed {
  std::unique_ptr<SymbolicEngine> engine;
  std::vector<HandedOver> steps;
  SymbolicResult result;  ///< of the first wrong optimizer step, else the last
};

/// Both arguments must outlive the result.
/// Complexity: a symbolic replay; linear in the pieces that ranks own, times optimizer steps.
Replayed replay_handed_over(const Schedule& schedule, const Timeline& timeline);

}  // namespace lockstep::diagnosis
