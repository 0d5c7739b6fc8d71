// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/transformer/core_attention.h"
#include "src/transformer/sharded_norm.h"

namespace lockstep::transformer {

/// A rank's part of self-attention: its heads (tp, and sp while it attends: Ulysses) and its queries (cp).
class ShardedAttention {
 public:
  /// `positions` of the rank's piece; `query_positions` of all that it attends for, `key_positions` of all that it
  /// attends to, in the order in which they are gathered.
  struct Places {
    std::vector<int> positions, query_positions, key_positions;
    std::vector<int> rotary;   ///< `positions`, unless an edit gets them wrong
    std::vector<int> learned;  ///< likewise, for the embedding
  };
  ShardedAttention(RankContext& context, const std::string& prefix, const Places& places);

  struct State {
    Real input;  ///< of the linears, all tokens of the piece
    NormState query_norm, key_norm;
    CoreAttention::State core;
    Real context;  ///< of the piece
  };
  Task<Real> forward(Real input, State& state);
  Task<Real> backward(Real gradient, const State& state, LocalGradients& gradients);

 private:
  /// q/k norm and rotary positions of heads side by side.
  Real prepare(const Real& heads, const std::string& norm, NormState& state) const;
  Real prepare_backward(const Real& gradient, const std::string& norm, const NormState& state,
                        LocalGradients& gradients) const;
  Real rotate(const Real& rows, int direction) const;

  RankContext& context_;
  std::string name_;
  const Places& places_;
  TensorParallelRegion region_;
  CoreAttention core_;
  Index size_;   ///< of a head
  int groups_;   ///< key-value heads of this tp rank
  int queries_;  ///< query heads of each
};

}  // namespace lockstep::transformer
