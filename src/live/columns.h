// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/live/captured_run.h"
#include "src/live/expected.h"
#include "src/live/sketch_files.h"

namespace lockstep::live {

/// A contribution to a piece, or several that are the same, which one of them names.
struct Column {
  int rank = 0, step = 0, micro_batch = 0;   ///< of the lowest
  std::vector<std::pair<int, int>> members;  ///< rank and micro-batch of all, ascending
  Eigen::VectorXd values;                    ///< its sketch
  Dtype dtype = Dtype::float32;              ///< the coarsest of its members
  /// With what coefficient it should enter: each member once, those that see the same tokens together once.
  std::optional<Rational> expected;
  const Expected* likely = nullptr;  ///< knows what is likely; null: several that see different tokens
  int different = 1;                 ///< members that see different tokens
};

/// The contributions to one piece in one optimizer step.
struct Columns {
  std::vector<Column> columns;             ///< by rank and micro-batch, without those that are zero
  std::vector<std::pair<int, int>> zeros;  ///< rank and micro-batch of those
  std::uint64_t non_finite = 0;
  std::vector<int> non_finite_ranks;
  std::string missing;  ///< why some are not known: a sentence without a period; ""
};

/// `tensors`: all contributions to the piece, by rank. The columns keep a pointer to `expected`.
Columns gather_columns(const CapturedRun& run, SketchFiles& files, const Expected& expected, int step,
                       const std::vector<const SketchedTensor*>& tensors);

}  // namespace lockstep::live
