// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "src/transformer/pipeline.h"

namespace lockstep::transformer {

struct ShardedRun {
  std::uint64_t seed = 0;            ///< of parameters and tokens
  std::uint64_t scheduler_seed = 0;  ///< no result depends on it
  SiteEdits edits;
  std::set<std::string>* reached = nullptr;  ///< Communicator
  PipelineOrder order = PipelineOrder::one_forward_one_backward;
};

/// What every rank's backward yields in an optimizer step, by rank and micro-batch (from 0 in it): forward and backward
/// of all micro-batches on the whole rank grid, with their communication, for the loss of one use.
/// `weight(rank, m)` is the factor on the losses of the tokens of that rank's piece.
/// Throws CommunicationError where ranks do not find together.
std::vector<std::vector<LocalGradients>> run_sharded(const Config& config, const Schedule& schedule, const Data& data,
                                                     int optimizer_step, const std::string& use,
                                                     const std::function<double(int rank, int m)>& weight,
                                                     const ShardedRun& options);

}  // namespace lockstep::transformer
