// SPDX-License-Identifier: Apache-2.0
#include "lockstep/token_table.h"

namespace lockstep {

namespace {

constexpr std::size_t axes = 4;

/// The coordinates of a range as stretches without gaps: one, or each for itself.
std::vector<TokenTable::Range> stretches(const TokenTable::Range& range) {
  if (range.stride == 1 || range.count == 0) return {{range.first, range.count, 1}};
  std::vector<TokenTable::Range> result;
  for (int i = 0; i < range.count; ++i) result.push_back({range.first + i * range.stride, 1, 1});
  return result;
}

}  // namespace

TokenTable::TokenTable(const Lists& lists)
    : sizes_{static_cast<int>(lists.size()), static_cast<int>(lists[0].size()), static_cast<int>(lists[0][0].size()),
             static_cast<int>(lists[0][0][0].size())} {
  sums_.assign(place(sizes_[0], 0, 0, 0), 0);
  for (int m = 0; m < sizes_[0]; ++m) {
    for (int d = 0; d < sizes_[1]; ++d) {
      for (int c = 0; c < sizes_[2]; ++c) {
        const auto& counts =
            lists[static_cast<std::size_t>(m)][static_cast<std::size_t>(d)][static_cast<std::size_t>(c)];
        for (int s = 0; s < sizes_[3]; ++s)
          sums_[place(m, d + 1, c + 1, s + 1)] = static_cast<std::uint64_t>(counts[static_cast<std::size_t>(s)]);
      }
    }
  }
  // Added up along one axis after the other.
  for (std::size_t axis = 1; axis < axes; ++axis) {
    std::size_t step = 1;
    for (std::size_t after = axis + 1; after < axes; ++after) step *= static_cast<std::size_t>(sizes_[after]) + 1;
    const std::size_t length = static_cast<std::size_t>(sizes_[axis]) + 1;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      if (i / step % length > 0) sums_[i] += sums_[i - step];
    }
  }
}

std::size_t TokenTable::place(int micro_batch, int dp, int cp, int sp) const {
  std::size_t result = static_cast<std::size_t>(micro_batch);
  result = result * static_cast<std::size_t>(sizes_[1] + 1) + static_cast<std::size_t>(dp);
  result = result * static_cast<std::size_t>(sizes_[2] + 1) + static_cast<std::size_t>(cp);
  return result * static_cast<std::size_t>(sizes_[3] + 1) + static_cast<std::size_t>(sp);
}

std::int64_t TokenTable::sum_of_box(int micro_batch, const Range& dp, const Range& cp, const Range& sp) const {
  const int row = micro_batch % sizes_[0];
  // By its eight corners; modulo 2^64, in which the differences come out right.
  std::uint64_t sum = 0;
  for (unsigned corner = 0; corner < 8; ++corner) {
    const bool d = (corner & 1) != 0, c = (corner & 2) != 0, s = (corner & 4) != 0;
    const std::uint64_t part =
        sums_[place(row, dp.first + (d ? dp.count : 0), cp.first + (c ? cp.count : 0), sp.first + (s ? sp.count : 0))];
    sum = d ^ c ^ s ? sum + part : sum - part;
  }
  return static_cast<std::int64_t>(sum);
}

std::int64_t TokenTable::at(int micro_batch, int dp, int cp, int sp) const {
  return sum_of_box(micro_batch, {dp}, {cp}, {sp});
}

Rational TokenTable::sum(Range micro_batch, Range dp, Range cp, Range sp) const {
  const std::vector<Range> of_cp = stretches(cp), of_sp = stretches(sp);
  Rational total;
  for (const Range& each : stretches(dp)) {
    for (const Range& cps : of_cp) {
      for (const Range& sps : of_sp) {
        for (int m = 0; m < micro_batch.count; ++m)
          total += sum_of_box(micro_batch.first + m * micro_batch.stride, each, cps, sps);
      }
    }
  }
  return total;
}

}  // namespace lockstep
