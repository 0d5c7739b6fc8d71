// SPDX-License-Identifier: Apache-2.0
#include "lockstep/token_table.h"

#include <random>

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
          const auto& counts =
              all[static_cast<std::size_t>(m % 3)][static_cast<std::size_t>(d)][static_cast<std::size_t>(c)];
          CHECK(table.at(m, d, c, s) == counts[static_cast<std::size_t>(s)]);
        }
      }
    }
  }
}

TEST_CASE("the sum of any box is that of its pieces") {
  const TokenTable table(lists());
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto range = [&](int size) {
    TokenTable::Range result{below(size), 0, 1 + below(3)};
    result.count = below((size - 1 - result.first) / result.stride + 2);
    return result;
  };
  for (int i = 0; i < 500; ++i) {
    const TokenTable::Range m = range(8), d = range(4), c = range(3), s = range(2);
    Rational expected;
    for (int a = 0; a < m.count; ++a) {
      for (int b = 0; b < d.count; ++b) {
        for (int e = 0; e < c.count; ++e) {
          for (int f = 0; f < s.count; ++f)
            expected += table.at(m.first + a * m.stride, d.first + b * d.stride, c.first + e * c.stride,
                                 s.first + f * s.stride);
        }
      }
    }
    CHECK(table.sum(m, d, c, s) == expected);
  }
}
