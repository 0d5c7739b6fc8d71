// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/numeric/exactness.h"

namespace lockstep::numeric {

/// What the checks of a plan found, added up over the elements that were replayed.
struct Findings {
  struct Check {
    bool right = true;
    GradientHash got, expected;
  };
  std::vector<Check> checks;  ///< by number
  /// By optimizer step and piece: hash of the reference's elements; for the pieces in `hashed`.
  std::vector<std::vector<GradientHash>> reference;
};

struct ReplayOptions {
  Arithmetic arithmetic = Arithmetic::prime61;
  int bits = 0;              ///< of the generator
  std::vector<char> hashed;  ///< by piece: whether Findings::reference is wanted
  bool hashes = true;        ///< false: only compares
};

/// Replays some elements of every buffer of the plan, at most `block` at a time, through all of its events. A plan that
/// is not aligned is replayed whole, in one block.
Findings replay(const Model& model, const Plan& plan, const ReplayOptions& options, const Intervals& elements,
                std::int64_t block);

}  // namespace lockstep::numeric
