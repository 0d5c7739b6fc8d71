// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/live/gradient_calls.h"

namespace lockstep::live {

/// A pipeline stage that holds a parameter, in which of its chunks, and the name that it has there.
struct StageName {
  int stage = 0, chunk = 0;
  std::string name;
};

/// How backward spreads a parameter's gradient over the ranks.
struct Placement {
  /// The parameter's, or, where a rank holds equally many blocks of a dimension, each as far from the next, with these
  /// as one more dimension before it: gate and up in one tensor, [2, 8, 4] of [16, 4]. The order of elements is the
  /// same.
  std::vector<std::int64_t> shape;
  std::vector<std::pair<int, int>> shard;         ///< axis of the mesh and the dimension that it cuts
  std::vector<int> partial;                       ///< axes over which the ranks' gradients are to be added up
  std::vector<int> redistributed;                 ///< axes over which what the optimizers get is to be added up as well
  std::vector<StageName> stages;                  ///< ascending; empty where there is no pipeline
  bool untouched = false;                         ///< no rank's backward yields it, and no optimizer gets it
  std::optional<std::vector<int>> micro_batches;  ///< in which backward yields it, where that is not in all
};

/// The smallest box of a Placement's shape that holds a piece of a parameter; nothing where the piece is empty.
std::optional<std::vector<Interval>> bounds_of_piece(const DeclaredParameter& parameter, int piece,
                                                     const std::vector<std::int64_t>& shape);

/// A piece as a box of a Placement's shape; nothing where it is none.
std::optional<std::vector<Interval>> box_of_piece(const DeclaredParameter& parameter, int piece,
                                                  const std::vector<std::int64_t>& shape);

/// The placement of each parameter, from what the ranks contributed and from which contributions `verified` found to be
/// the same. What the axes are in the scenario says along which ones ranks see different tokens. Throws InputError
/// where ranks along a data axis hold different parts, which lockstep's axes do not do.
std::vector<Placement> find_placements(const CapturedRun& run, const VerifyResult& verified,
                                       const std::vector<int>& steps, const AxisNames& names);

}  // namespace lockstep::live
