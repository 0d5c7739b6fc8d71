// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "src/live/captured_run.h"
#include "src/live/sketch_files.h"
#include "src/live/vectors.h"

namespace lockstep::live {

/// Ranks whose optimizers get the same bits of a piece.
struct SameResult {
  const SketchedTensor* first = nullptr;
  std::vector<int> ranks;
  std::vector<const SketchedTensor*> shares;  ///< whose sum it is, on ranks that each have a part of the sum
};

/// The distinct results among those of one piece in one optimizer step, which are by rank.
std::vector<SameResult> distinct_results(const CapturedRun& run, const std::vector<const SketchedTensor*>& results);

/// What the events say of a result: of the first rank, or of all shares together.
SketchedTensor whole(const SameResult& result);

/// Reads a result's sketch into `values`. Returns the rank whose sketches are missing, if some are.
std::optional<int> read_result(SketchFiles& files, int step, const SameResult& result, Vector& values);

}  // namespace lockstep::live
