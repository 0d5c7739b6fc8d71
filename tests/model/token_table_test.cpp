// SPDX-License-Identifier: Apache-2.0
#include "lockstep/token_table.h"

#include <random>

#include "src/base/at.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

/// Counts of 3 micro-batches of dp 4, cp 3 and sp 2: every one another power of 2 plus 1, or 0.
TokenTable::Lists lists() {
  TokenTable::Lists result(3, {4, {3, {0, 0}}});
  std::int64_t number = 0;
  for (auto& of_micro_batch : result) {
    for (auto& of_dp : of_micro_batch) {
      for (auto& of_cp : of_dp) {
        for (std::int64_t& count : of_cp) {
          count = number % 5 == 0 ? 0 : (std::int64_t{1} << number % 40) + 1;
          ++number;
        }
      }
    }
  }
  return result;
}

}  // namespace

TEST_CASE("a table gives back each count, and begins again behind its last micro-batch") {
  const TokenTable::Lists all = lists();
  const TokenTable table(all);
  for (int m = 0; m < 7; ++m) {
    for (int d = 0; d < 4; ++d) {
      for (int c = 0; c < 3; ++c) {
        for (int s = 0; s < 2; ++s) {
          const auto& counts = all[at(m % 3)][at(d)][at(c)];
          CHECK(table.at(m, d, c, s) == counts[at(s)]);
        }
      }
    }
  }
}

TEST_CASE("the sum of any box is that of its pieces, however often the table is repeated") {
  TokenTable::Lists all = lists();
  SECTION("counts that add up to less than 2^63") {}
  SECTION("any two micro-batches add up to 2^63 or more") {
    for (auto& of_micro_batch : all) of_micro_batch[1][2][1] = std::int64_t{1} << 62;
  }
  SECTION("some neighbors add up to 2^63 or more") {
    all = {all[0], all[1], all[2], all[0], all[1]};
    for (const std::size_t i : {0, 2, 3}) all[i][3][0][1] = (std::int64_t{1} << 62) + (std::int64_t{1} << 61);
  }
  SECTION("a single micro-batch") { all.resize(1); }
  const TokenTable table(all);
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto range = [&](int size) {
    if (below(3) == 0) return TokenTable::Range{0, size, 1};  // sums beyond 2^63 are those of much of the table
    TokenTable::Range result{below(size), 0, 1 + below(3)};
    result.count = below((size - 1 - result.first) / result.stride + 2);
    return result;
  };
  for (int i = 0; i < 500; ++i) {
    const TokenTable::Range m = range(i % 2 == 0 ? 8 : 40), d = range(4), c = range(3), s = range(2);
    Rational expected;
    for (int a = 0; a < m.count; ++a) {
      const std::size_t row = static_cast<std::size_t>(m.first + a * m.stride) % all.size();
      for (int b = 0; b < d.count; ++b) {
        for (int e = 0; e < c.count; ++e) {
          for (int f = 0; f < s.count; ++f) {
            const auto& counts = all[row][at(d.first + b * d.stride)][at(c.first + e * c.stride)];
            expected += counts[at(s.first + f * s.stride)];
          }
        }
      }
    }
    CHECK(table.sum(m, d, c, s) == expected);
  }
}
