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
  /// The counts that it was made from.
  Lists lists() const;
  friend bool operator==(const TokenTable&, const TokenTable&) = default;
  /// Of a box, over any number of repetitions of the table: constant time, for each coordinate along an axis whose
  /// stride is not 1, and for each 2^63 tokens that the table has.
  Rational sum(Range micro_batch, Range dp, Range cp, Range sp) const;

 private:
  std::size_t place(int micro_batch, int dp, int cp, int sp) const;
  /// Of a box within the table, without gaps, whose sum is less than 2^63.
  std::int64_t sum_of_box(const Range& micro_batch, const Range& dp, const Range& cp, const Range& sp) const;
  /// Of the micro-batches [begin, end) of the table.
  Rational sum_in_table(int begin, int end, const Range& dp, const Range& cp, const Range& sp) const;

  std::array<int, 4> sizes_{};  ///< micro-batches, dp, cp, sp
  /// By micro-batch, dp, cp and sp, with one coordinate more: the sum of the counts whose coordinates are all smaller,
  /// modulo 2^64.
  std::vector<std::uint64_t> sums_;
  /// Micro-batches, ascending up to the end of the table: all counts between two of them add up to less than 2^63.
  std::vector<int> limits_;
};

}  // namespace lockstep
