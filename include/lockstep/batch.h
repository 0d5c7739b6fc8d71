// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/expression.h"
#include "lockstep/token_table.h"

namespace lockstep {

/// What one device minimizes: the weight with which a piece's summed loss enters (scenario-format.md).
struct Loss {
  enum class Kind { token_mean, micro_batch_mean, local_mean, sum, weight };
  Kind kind = Kind::token_mean;
  Expression weight;  ///< only for Kind::weight
  Place place;        ///< where that stands

  /// `weight` for the piece that the environment names. Throws InputError where it cannot be evaluated there.
  Rational weight_of(const Environment& environment) const;
  friend bool operator==(const Loss& a, const Loss& b);  ///< places aside
};

/// The batch of a scenario: micro-batches, token counts per piece, losses per use.
class Batch : public TokenCounts {
 public:
  /// How the tokens of a use are given.
  struct Tokens {
    enum class Kind { uneven, even, list };
    Kind kind = Kind::uneven;
    TokenTable list;  ///< all micro-batches of all steps, or those of one, used again
    friend bool operator==(const Tokens&, const Tokens&) = default;
  };

  std::vector<int> micro_batch_counts = {2};      ///< one per optimizer step; never empty
  std::map<std::string, Tokens> tokens_of_use;    ///< a use without its own takes "main"'s
  std::map<std::string, Loss> loss_of_use;        ///< likewise
  std::map<std::string, Rational> weight_of_use;  ///< factor on the use's loss; default 1

  std::int64_t tokens(const std::string& use, int micro_batch, int dp, int cp, int sp) const override;
  /// In constant time where the tokens are `uneven` or `even`; TokenTable says what it costs where they are listed.
  Rational sum(const std::string& use, Range micro_batch, Range dp, Range cp, Range sp) const override;
  int micro_batches(int step) const override { return micro_batch_counts[static_cast<std::size_t>(step)]; }
  int first_micro_batch(int step) const override;
  int steps() const override { return static_cast<int>(micro_batch_counts.size()); }
  int total_micro_batches() const { return first_micro_batch(steps()); }
  const Loss& loss(const std::string& use) const;
  Rational weight(const std::string& use) const;
  friend bool operator==(const Batch& a, const Batch& b);  ///< places aside
};

}  // namespace lockstep
