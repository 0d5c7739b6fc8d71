// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "src/transformer/rank_model.h"

namespace lockstep::transformer {

enum class PipelineOrder { gpipe, one_forward_one_backward, interleaved };

/// A pass of one micro-batch through one chunk.
struct Pass {
  bool forward = true;
  int chunk = 0;
  int micro_batch = 0;  ///< from 0
  friend bool operator==(const Pass&, const Pass&) = default;
};

/// What a stage does, in order. Interleaved is Megatron's order of 1F1B over several chunks; it needs micro-batches in
/// multiples of the stages, and is GPipe's order, chunk by chunk, where there are others.
std::vector<Pass> pipeline_passes(PipelineOrder order, int stages, int stage, int chunks, int micro_batches);

/// Runs one rank's passes, with sends and receives between neighbouring stages. `weights(m)` are those of micro-batch
/// m; gradients[m] gets what the rank computed in it. `first_micro_batch` is where the counting through the optimizer
/// steps stands.
Task<> run_passes(RankModel& model, Communicator& comm, std::vector<Pass> passes, int first_micro_batch,
                  std::function<LossWeights(int)> weights, std::vector<LocalGradients>& gradients);

}  // namespace lockstep::transformer
