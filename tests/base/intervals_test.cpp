// SPDX-License-Identifier: Apache-2.0
#include "lockstep/intervals.h"

#include "tests/catch.h"

using lockstep::Interval;
using lockstep::Intervals;

namespace {

constexpr int elements = 8;

/// The set whose element i is in it where bit i of `bits` is set.
Intervals set_of(unsigned bits) {
  Intervals set;
  for (int i = 0; i < elements; ++i) {
    if (!(bits >> i & 1U)) continue;
    if (!set.empty() && set.back().end == i) {
      set.back().end = i + 1;
    } else {
      set.push_back({i, i + 1});
    }
  }
  return set;
}

}  // namespace

TEST_CASE("Sets of intervals obey the algebra of sets, for every pair of sets of eight elements") {
  bool good = true;
  for (unsigned a = 0; a < 1U << elements; ++a) {
    for (unsigned b = 0; b < 1U << elements; ++b) {
      const Intervals x = set_of(a), y = set_of(b);
      good =
          good && intersect(x, y) == set_of(a & b) && unite(x, y) == set_of(a | b) && subtract(x, y) == set_of(a & ~b);
    }
  }
  CHECK(good);
}

TEST_CASE("A set is cut by one interval") {
  for (unsigned a = 0; a < 1U << elements; ++a) {
    const Intervals set = set_of(a);
    CHECK(size(set) == __builtin_popcount(a));
    CHECK(intersect(set, Interval{2, 5}) == set_of(a & 0b00011100U));
    CHECK(intersect(set, Interval{3, 3}).empty());
  }
}

TEST_CASE("Two intervals share an interval or nothing") {
  CHECK(intersect(Interval{0, 5}, Interval{3, 9}) == Interval{3, 5});
  CHECK(intersect(Interval{0, 3}, Interval{3, 9}).empty());
  CHECK(intersect(Interval{0, 3}, Interval{7, 9}) == Interval{});
}

TEST_CASE("Touching and empty intervals disappear in a union") {
  CHECK(lockstep::unite({{0, 3}}, {{3, 5}}) == Intervals{{0, 5}});
  CHECK(lockstep::unite({{0, 3}, {8, 8}}, {}) == Intervals{{0, 3}});
}
