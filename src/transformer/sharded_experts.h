// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/transformer/sharded_mlp.h"

namespace lockstep::transformer {

/// A rank's part of a mixture of experts. Tokens travel to the ranks that hold the experts they chose (all-to-all over
/// ep) and are shared by the ranks that hold a piece of those (etp); the results travel back.
class ShardedExperts {
 public:
  ShardedExperts(RankContext& context, const std::string& prefix);

  struct State {
    Real input;
    Real spread;         ///< the router's softmax, by token and expert, over all experts or the chosen ones
    Real chosen;         ///< 1 where a token chose an expert
    Real probabilities;  ///< auxiliary loss: the softmax over all experts
    Real load;           ///< auxiliary loss: the derivative of a token's by its probabilities
    struct Row {
      Index token;
      int expert;
    };
    std::vector<Row> sent;            ///< in the order in which they left; without those that are dropped
    std::vector<int> sent_rows;       ///< to each member of the ep group
    std::vector<int> received_rows;   ///< from each
    std::vector<int> shared_rows;     ///< from each member of the etp group
    Real arrived;                     ///< tokens here, with their expert and the rank that they stem from
    std::vector<Real> inner, active;  ///< by local expert
    std::vector<std::vector<Index>> rows_of;
    Real results;  ///< of the rows that were sent
    ShardedMlp::State shared;
    Real shared_result;
    Real gate;  ///< a column
  };
  Task<Real> forward(Real input, State& state);
  /// `auxiliary` has the factors on the auxiliary losses of the tokens.
  Task<Real> backward(Real gradient, const State& state, Real auxiliary, LocalGradients& gradients);

 private:
  std::string weight(const char* linear, int expert) const;
  void route(State& state) const;
  void drop(State& state) const;
  Task<> balance(State& state) const;
  Task<Real> dispatch(const char* to_experts, const char* to_pieces, Real rows, State& state) const;
  Task<Real> dispatch_again(const char* to_experts, const char* to_pieces, Real rows, const State& state) const;
  Task<Real> give_back(const char* from_pieces, const char* from_experts, Real results, const State& state) const;
  Real compute(State& state) const;
  Real compute_backward(const Real& gradient, const State& state, LocalGradients& gradients) const;
  Task<Real> shared_backward(Real gradient, const State& state, LocalGradients& gradients);

  RankContext& context_;
  std::string name_;
  int local_experts_;
  std::optional<ShardedMlp> shared_;
};

}  // namespace lockstep::transformer
