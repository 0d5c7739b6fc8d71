// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/rational.h"
#include "src/live/captured_run.h"

namespace lockstep::live {

/// The coefficient with which the contributions of one optimizer step should enter, by the loss that the ranks
/// differentiate. Knows the mesh and the tokens, and nothing of what the run did.
class Expected {
 public:
  Expected(const CapturedRun& run, std::optional<CapturedLoss> loss, int step);

  /// Nothing where it is not known.
  std::optional<Rational> of(int rank, int micro_batch) const;
  /// Tokens of a rank's micro-batch; nothing where nobody told.
  std::optional<std::int64_t> tokens(int rank, int micro_batch) const;
  /// Tokens of the optimizer step; nothing where not all are known.
  std::optional<std::int64_t> total() const { return total_; }
  /// What wrong normalizations would give this contribution, by their numbers below likely_kinds; nothing where token
  /// counts are not known.
  std::optional<Rational> likely(int rank, int micro_batch, int kind) const;
  static constexpr int likely_kinds = 40;
  /// Why some are not known although the loss is: a sentence; "".
  const std::string& unknown() const { return unknown_; }

 private:
  /// Means over different numbers of micro-batches weigh what is in them differently.
  void compare_micro_batches(int step);

  const CapturedRun& run_;
  std::optional<CapturedLoss> loss_;
  std::vector<std::vector<std::optional<std::int64_t>>> tokens_;  // by data coordinate and micro-batch
  std::optional<std::int64_t> total_;
  std::vector<std::int64_t> of_rank_, of_micro_batch_;  // tokens by data coordinate, and by micro-batch
  std::string unknown_;
};

/// The nearest float64.
double to_double(const Rational& value);

}  // namespace lockstep::live
