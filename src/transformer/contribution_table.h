// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/gradient_state.h"
#include "lockstep/timeline.h"
#include "src/transformer/sharded_model.h"

namespace lockstep::transformer {

/// What the backward steps of a timeline add: a run of the sharded model for each optimizer step, backward step and
/// use, with the losses of each rank's tokens times what the step says there.
class ContributionTable {
 public:
  /// Throws CommunicationError.
  ContributionTable(const Config& config, const Schedule& schedule, const Timeline& timeline, const Data& data,
                    const ShardedRun& options);

  /// One summand of what a rank's backward adds to a buffer, as a vector of its local elements.
  struct Share {
    int parameter = 0;  ///< the site, index into Model::parameters()
    std::string use;
    int source = 0;  ///< the rank whose tokens it stems from
    const Real* values = nullptr;
  };
  std::vector<Share> shares(const Step& step, int optimizer_step, int micro_batch, int rank, int buffer) const;

  /// A contribution under the name that the symbolic engine gives it.
  struct Named {
    Term term;
    const Real* values;  ///< null for one that is 0, such as that of tokens of which none came to an expert
  };
  /// All that are made to a piece of a logical parameter in an optimizer step: those of one rank for each name.
  std::vector<Named> named(int logical, int piece, int optimizer_step) const;

 private:
  using Key = std::tuple<const Step*, int, std::string>;  ///< backward step, optimizer step, use
  const Schedule& schedule_;
  const Contributions& contributions_;
  /// Ranks and micro-batches in which each backward step ran, by optimizer step.
  std::map<std::pair<const Step*, int>, std::set<std::pair<int, int>>> called_;
  std::vector<const Step*> order_;                                ///< backward steps, by their last call
  std::map<Key, std::vector<std::vector<LocalGradients>>> runs_;  ///< by rank and micro-batch
};

}  // namespace lockstep::transformer
