// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/base/at.h"
#include "src/transformer/rank_context.h"

namespace lockstep::transformer {

/// Attention without its linears: queries of this rank against the keys and values of the whole sequence, which is cut
/// over cp. How they meet is Config::context_exchange: keys and values are gathered; or they travel a ring while each
/// rank keeps a running softmax (Liu, Zaharia, Abbeel, 2023), and their gradients travel with them; or ranks trade
/// tokens for heads.
class CoreAttention {
 public:
  /// `query_positions` of the tokens of this rank, `key_positions` of those of all cp ranks, one after the other.
  CoreAttention(RankContext& context, const std::vector<int>& query_positions, const std::vector<int>& key_positions)
      : context_(context), query_positions_(query_positions), key_positions_(key_positions) {}

  struct State {
    Real query, key, value;     ///< as attended with; in a ring the rank's own
    std::vector<Real> weights;  ///< by query head; not in a ring
    Real result;                ///< ring
    Real log_sums;              ///< ring: the logarithm of the sum of exponentials, by token and query head
  };
  struct Gradients {
    Real query, key, value;
  };
  /// Tokens are rows, heads lie side by side. Yields the context in the shape of the query.
  Task<Real> forward(Real query, Real key, Real value, State& state) const;
  Task<Gradients> backward(Real gradient, const State& state) const;

 private:
  Real attend(const std::vector<int>& query_positions, State& state) const;
  Gradients attend_backward(const Real& gradient, const State& state) const;
  Task<Real> ring(State& state) const;
  Task<Gradients> ring_backward(Real gradient, const State& state) const;
  /// `tensor` goes to the next rank of the ring, and what the one before sends is the result. `owner` is the member
  /// whose block arrives, for messages that do not match.
  Task<Real> pass_on(const char* site, int channel, int owner, Real tensor) const;
  /// The key head of a query head, in columns.
  Index key_of(Index head) const;
  bool is_ahead(Index query, std::size_t key) const { return key_positions_[key] > query_positions_[at(query)]; }

  RankContext& context_;
  const std::vector<int>& query_positions_;
  const std::vector<int>& key_positions_;
};

/// Ulysses: ranks along `axis` trade tokens for heads. A rank gives each member its part of the heads, and gets that of
/// its own heads from all members; to_tokens() is the way back.
Task<Real> to_heads(Communicator& comm, const char* site, Axis axis, Real tensor);
Task<Real> to_tokens(Communicator& comm, const char* site, Axis axis, Real tensor);

}  // namespace lockstep::transformer
