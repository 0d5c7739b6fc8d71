// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lockstep/expression.h"

namespace lockstep {

/// Token counts that are written out, one for each piece of some micro-batches. A micro-batch behind the last takes the
/// counts of the first again, and so on.
class TokenTable {
 public:
  using Range = TokenCounts::Range;
  /// [micro-batch][dp][cp][sp], none of them empty, all lists of one depth of one length; the counts of a micro-batch
  /// add up to less than 2^63.
  using Lists = std::vector<std::vector<std::vector<std::vector<std::int64_t>>>>;

  TokenTable() = default;
  explicit TokenTable(const Lists& lists);

  std::int64_t at(int micro_batch, int dp, int cp, int sp) const;
  /// Of a box: constant time for each micro-batch, and for each coordinate along an axis whose stride is not 1.
  Rational sum(Range micro_batch, Range dp, Range cp, Range sp) const;

 private:
  std::size_t place(int micro_batch, int dp, int cp, int sp) const;
  std::int64_t sum_of_box(int micro_batch, const Range& dp, const Range& cp, const Range& sp) const;

  std::array<int, 4> sizes_{};  ///< micro-batches, dp, cp, sp
  /// By micro-batch, dp, cp and sp, the last three with one coordinate more: the sum of the micro-batch's counts whose
  /// coordinates are all smaller.
  std::vector<std::uint64_t> sums_;
};

}  // namespace lockstep
