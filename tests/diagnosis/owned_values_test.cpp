// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/owned_values.h"

#include "tests/catch.h"

using namespace lockstep;

namespace {

/// Each of `ranks` owns all elements.
std::vector<OwnedStretch> replicated(int ranks, int value) {
  std::vector<OwnedStretch> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back({{0, 8 * ranks}, value, rank, 0, 0});
  return result;
}

/// Each of `ranks` owns its eight.
std::vector<OwnedStretch> sharded(int ranks, int value) {
  std::vector<OwnedStretch> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back({{8 * rank, 8 * rank + 8}, value, rank, 0, 0});
  return result;
}

}  // namespace

TEST_CASE("owners with the same values are no difference, however elements are cut") {
  CHECK(other_values(replicated(4, 1), sharded(4, 1)).empty());
  CHECK(other_values(sharded(4, 1), replicated(4, 1)).empty());
}

TEST_CASE("a value that no owner has any more is told with its elements and the ranks that had it") {
  const std::vector<OtherValue> found = other_values(sharded(2, 1), replicated(2, 2));
  REQUIRE(found.size() == 2);
  CHECK(found[0].before.rank == 0);
  CHECK(found[0].before.elements == Interval{0, 8});
  CHECK(found[0].after.value == 2);
  CHECK(found[1].before.rank == 1);
  CHECK(found[1].before.elements == Interval{8, 16});
  // Replicas with one value are told once, by the lowest.
  CHECK(other_values(replicated(3, 1), sharded(3, 2)).size() == 1);
}

TEST_CASE("only where the value is gone, and against the lowest of the others") {
  // Rank 0 has value 1 of all elements; then of the second half, and ranks 1 and 2 have others of the first.
  const std::vector<OtherValue> found =
      other_values({{{0, 8}, 1, 0, 0, 0}}, {{{4, 8}, 1, 0, 0, 0}, {{0, 4}, 7, 1, 0, 0}, {{0, 8}, 5, 2, 0, 0}});
  REQUIRE(found.size() == 1);
  CHECK(found[0].before.elements == Interval{0, 4});
  CHECK(found[0].after.value == 5);
  CHECK(found[0].after.rank == 2);
}

TEST_CASE("an owner of some elements within another's takes nothing from it") {
  const std::vector<OtherValue> found =
      other_values({{{0, 8}, 1, 0, 0, 0}, {{2, 4}, 1, 1, 0, 0}}, {{{6, 8}, 2, 0, 0, 0}});
  REQUIRE(found.size() == 1);
  CHECK(found[0].before.elements == Interval{6, 8});
}

TEST_CASE("elements that nobody owns any more are left out") {
  CHECK(other_values(sharded(2, 1), {}).empty());
  const std::vector<OtherValue> found = other_values(replicated(1, 1), {{{2, 4}, 3, 0, 0, 0}});
  REQUIRE(found.size() == 1);
  CHECK(found[0].before.elements == Interval{2, 4});
}

TEST_CASE("replicated against sharded costs what there are of stretches") {
  for (const bool right : {true, false}) {
    std::vector<std::size_t> counts;
    for (const int ranks : {64, 256, 1024}) {
      std::size_t& count = counts.emplace_back(0);
      other_values(replicated(ranks, 1), sharded(ranks, right ? 1 : 2), &count);
      other_values(sharded(ranks, 1), replicated(ranks, right ? 1 : 2), &count);
      INFO(ranks << " ranks: " << count);
      CHECK(count <= 8 * static_cast<std::size_t>(ranks));
    }
    CHECK(counts[2] < 5 * counts[1]);
  }
}

TEST_CASE("as many wrong values as ranks, each once") {
  // Every rank has all elements with a value of its own, where afterwards they are sharded and right.
  std::size_t count = 0;
  std::vector<OwnedStretch> own = replicated(1024, 0);
  for (OwnedStretch& stretch : own) stretch.value = stretch.rank + 1;
  CHECK(other_values(own, sharded(1024, 0), &count).size() == 1024);
  CHECK(count < 10 * 1024);
}
