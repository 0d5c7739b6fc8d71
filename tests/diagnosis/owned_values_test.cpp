// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/owned_values.h"

#include "tests/catch.h"

using namespace lockstep;

namespace {

/// Each of `ranks` owns all elements.
std::vector<diagnosis::OwnedStretch> replicated(int ranks, int value) {
  std::vector<diagnosis::OwnedStretch> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back({{0, 8 * ranks}, value, rank, 0, 0});
  return result;
}

/// Each of `ranks` owns its eight.
std::vector<diagnosis::OwnedStretch> sharded(int ranks, int value) {
  std::vector<diagnosis::OwnedStretch> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back({{8 * rank, 8 * rank + 8}, value, rank, 0, 0});
  return result;
}

std::vector<diagnosis::OtherValue> others(const std::vector<diagnosis::OwnedStretch>& before,
                                          const std::vector<diagnosis::OwnedStretch>& after,
                                          std::size_t* looked_at = nullptr) {
  return diagnosis::other_values(diagnosis::by_value(before), diagnosis::by_value(after), looked_at);
}

}  // namespace

TEST_CASE("owners with the same values are no difference, however elements are cut") {
  CHECK(others(replicated(4, 1), sharded(4, 1)).empty());
  CHECK(others(sharded(4, 1), replicated(4, 1)).empty());
}

TEST_CASE("a value that no owner has any more is told with its elements") {
  const std::vector<diagnosis::OtherValue> found = others(sharded(2, 1), replicated(2, 2));
  REQUIRE(found.size() == 1);
  CHECK(found[0].before == 1);
  CHECK(found[0].after == 2);
  CHECK(found[0].elements == Intervals{{0, 16}});
}

TEST_CASE("only where the value is gone, and against the lowest of the others") {
  // Rank 0 has value 1 of all elements; then of the second half, and ranks 1 and 2 have others of the first.
  const std::vector<diagnosis::OtherValue> found =
      others({{{0, 8}, 1, 0, 0, 0}}, {{{4, 8}, 1, 0, 0, 0}, {{0, 4}, 7, 1, 0, 0}, {{0, 8}, 5, 2, 0, 0}});
  REQUIRE(found.size() == 1);
  CHECK(found[0].elements == Intervals{{0, 4}});
  CHECK(found[0].after == 5);
}

TEST_CASE("an owner of some elements within another's takes nothing from it") {
  const std::vector<diagnosis::OtherValue> found =
      others({{{0, 8}, 1, 0, 0, 0}, {{2, 4}, 1, 1, 0, 0}}, {{{6, 8}, 2, 0, 0, 0}});
  REQUIRE(found.size() == 1);
  CHECK(found[0].elements == Intervals{{6, 8}});
}

TEST_CASE("elements that nobody owns any more are left out") {
  CHECK(others(sharded(2, 1), {}).empty());
  const std::vector<diagnosis::OtherValue> found = others(replicated(1, 1), {{{2, 4}, 3, 0, 0, 0}});
  REQUIRE(found.size() == 1);
  CHECK(found[0].elements == Intervals{{2, 4}});
}

TEST_CASE("a stretch has all ranks that hold it, and ends where others do") {
  std::int64_t more = 0;
  const std::vector<DifferingElements> found =
      diagnosis::holders({{0, 4}, {6, 24}}, sharded(3, 1), {{{0, 12}, 2, 7, 0, 0}, {{0, 24}, 2, 5, 0, 0}}, 4, more);
  REQUIRE(found.size() == 4);
  CHECK(found[0].elements == Interval{0, 4});
  CHECK(found[0].ranks == std::vector<int>{0});
  CHECK(found[0].new_ranks == std::vector<int>{5, 7});
  CHECK(found[1].elements == Interval{6, 8});
  CHECK(found[2].elements == Interval{8, 12});
  CHECK(found[2].ranks == std::vector<int>{1});
  CHECK(found[3].elements == Interval{12, 16});
  CHECK(found[3].new_ranks == std::vector<int>{5});
  CHECK(more == 8);
}

TEST_CASE("replicated against sharded costs what there are of stretches") {
  for (const bool right : {true, false}) {
    std::vector<std::size_t> counts;
    for (const int ranks : {64, 256, 1024}) {
      std::size_t& count = counts.emplace_back(0);
      others(replicated(ranks, 1), sharded(ranks, right ? 1 : 2), &count);
      others(sharded(ranks, 1), replicated(ranks, right ? 1 : 2), &count);
      INFO(ranks << " ranks: " << count);
      CHECK(count <= 8 * static_cast<std::size_t>(ranks));
    }
    CHECK(counts[2] < 5 * counts[1]);
  }
}

TEST_CASE("as many wrong values as ranks, each once") {
  // Every rank has all elements with a value of its own, where afterwards they are sharded and right.
  std::size_t count = 0;
  std::vector<diagnosis::OwnedStretch> own = replicated(1024, 0);
  for (diagnosis::OwnedStretch& stretch : own) stretch.value = stretch.rank + 1;
  CHECK(others(own, sharded(1024, 0), &count).size() == 1024);
  CHECK(count < 10 * 1024);
  CHECK(count > 2 * 1024);  // each value is held against another
}

TEST_CASE("beyond the most stretches the elements are counted, each once") {
  std::int64_t more = 0;
  const std::vector<DifferingElements> found =
      diagnosis::holders({{0, 20}, {22, 24}}, sharded(3, 1), sharded(3, 2), 1, more);
  REQUIRE(found.size() == 1);
  CHECK(found[0].elements == Interval{0, 8});
  CHECK(more == 14);
  more = 0;
  CHECK(diagnosis::holders({{0, 20}}, sharded(3, 1), sharded(3, 2), 0, more).empty());
  CHECK(more == 20);
}
