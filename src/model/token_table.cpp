// SPDX-License-Identifier: Apache-2.0
#include "lockstep/token_table.h"

#include <algorithm>
#include <limits>

#include "src/base/at.h"

namespace lockstep {

namespace {

/// The coordinates of a range as stretches without gaps: one, or each for itself.
std::vector<TokenTable::Range> stretches(const TokenTable::Range& range) {
  if (range.stride == 1 || range.count == 0) return {{range.first, range.count, 1}};
  std::vector<TokenTable::Range> result;
  result.reserve(lockstep::at(range.count));
  for (int i = 0; i < range.count; ++i) result.push_back({range.first + i * range.stride, 1, 1});
  return result;
}

}  // namespace

TokenTable::TokenTable(const Lists& lists)
    : sizes_{static_cast<int>(lists.size()), static_cast<int>(lists[0].size()), static_cast<int>(lists[0][0].size()),
             static_cast<int>(lists[0][0][0].size())} {
  sums_.assign(place(sizes_[0] + 1, 0, 0, 0), 0);
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t since_limit = 0;
  for (int m = 0; m < sizes_[0]; ++m) {
    std::uint64_t of_micro_batch = 0;
    for (int d = 0; d < sizes_[1]; ++d) {
      for (int c = 0; c < sizes_[2]; ++c) {
        const auto& counts = lists[lockstep::at(m)][lockstep::at(d)][lockstep::at(c)];
        for (int s = 0; s < sizes_[3]; ++s) {
          const auto count = static_cast<std::uint64_t>(counts[lockstep::at(s)]);
          sums_[place(m + 1, d + 1, c + 1, s + 1)] = count;
          of_micro_batch += count;
        }
      }
    }
    if (of_micro_batch > most - since_limit) {
      limits_.push_back(m);
      since_limit = 0;
    }
    since_limit += of_micro_batch;
  }
  limits_.push_back(sizes_[0]);
  // Added up along one axis after the other, modulo 2^64.
  std::size_t step = sums_.size();
  for (const int size : sizes_) {
    const std::size_t length = static_cast<std::size_t>(size) + 1;
    step /= length;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      if (i / step % length > 0) sums_[i] += sums_[i - step];
    }
  }
}

TokenTable::Lists TokenTable::lists() const {
  Lists lists(static_cast<std::size_t>(sizes_[0]));
  for (int m = 0; m < sizes_[0]; ++m) {
    for (int d = 0; d < sizes_[1]; ++d) {
      auto& of_dp = lists[lockstep::at(m)].emplace_back();
      for (int c = 0; c < sizes_[2]; ++c) {
        auto& of_cp = of_dp.emplace_back();
        for (int s = 0; s < sizes_[3]; ++s) of_cp.push_back(at(m, d, c, s));
      }
    }
  }
  return lists;
}

std::size_t TokenTable::place(int micro_batch, int dp, int cp, int sp) const {
  std::size_t result = static_cast<std::size_t>(micro_batch);
  result = result * static_cast<std::size_t>(sizes_[1] + 1) + static_cast<std::size_t>(dp);
  result = result * static_cast<std::size_t>(sizes_[2] + 1) + static_cast<std::size_t>(cp);
  return result * static_cast<std::size_t>(sizes_[3] + 1) + static_cast<std::size_t>(sp);
}

std::int64_t TokenTable::sum_of_box(const Range& micro_batch, const Range& dp, const Range& cp, const Range& sp) const {
  // By its sixteen corners; modulo 2^64, in which the differences come out right.
  std::uint64_t sum = 0;
  for (unsigned corner = 0; corner < 16; ++corner) {
    const bool m = (corner & 8) != 0, d = (corner & 4) != 0, c = (corner & 2) != 0, s = (corner & 1) != 0;
    const std::uint64_t part =
        sums_[place(micro_batch.first + (m ? micro_batch.count : 0), dp.first + (d ? dp.count : 0),
                    cp.first + (c ? cp.count : 0), sp.first + (s ? sp.count : 0))];
    sum = m ^ d ^ c ^ s ? sum - part : sum + part;
  }
  return static_cast<std::int64_t>(sum);
}

Rational TokenTable::sum_in_table(int begin, int end, const Range& dp, const Range& cp, const Range& sp) const {
  Rational total;
  for (auto limit = std::upper_bound(limits_.begin(), limits_.end(), begin); begin < end; ++limit) {
    const int next = std::min(end, *limit);
    total += sum_of_box({begin, next - begin, 1}, dp, cp, sp);
    begin = next;
  }
  return total;
}

std::int64_t TokenTable::at(int micro_batch, int dp, int cp, int sp) const {
  return sum_of_box({micro_batch % sizes_[0]}, {dp}, {cp}, {sp});
}

Rational TokenTable::sum(Range micro_batch, Range dp, Range cp, Range sp) const {
  const std::vector<Range> of_cp = stretches(cp), of_sp = stretches(sp), of_micro_batch = stretches(micro_batch);
  Rational total;
  for (const Range& each : stretches(dp)) {
    for (const Range& cps : of_cp) {
      for (const Range& sps : of_sp) {
        for (const Range& ms : of_micro_batch) {
          // As many whole tables as there are, wherever they begin, and what is left over from its beginning on.
          const int begin = ms.first % sizes_[0], whole = ms.count / sizes_[0], end = begin + ms.count % sizes_[0];
          if (whole > 0) total += Rational(whole) * sum_in_table(0, sizes_[0], each, cps, sps);
          total += sum_in_table(begin, std::min(end, sizes_[0]), each, cps, sps);
          total += sum_in_table(0, std::max(end - sizes_[0], 0), each, cps, sps);
        }
      }
    }
  }
  return total;
}

}  // namespace lockstep
