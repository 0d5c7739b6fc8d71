// SPDX-License-Identifier: Apache-2.0
#include "src/device/block.h"

#include "tests/catch.h"

using namespace lockstep;
using device::Block;
using device::cut_into_blocks;

TEST_CASE("a block stores its stretches one behind the other") {
  const Block block({{10, 14}, {20, 21}, {30, 40}});
  CHECK(block.count() == 15);
  CHECK(block.begin_of(2) == 5);
  CHECK(block.places({{0, 100}}) == Intervals{{0, 15}});
  CHECK(block.places({{12, 20}}) == Intervals{{2, 4}});
  CHECK(block.places({{13, 31}}) == Intervals{{3, 6}});
  CHECK(block.places({{11, 12}, {35, 36}}) == Intervals{{1, 2}, {10, 11}});
  CHECK(block.places({{14, 20}, {21, 30}, {40, 50}}).empty());
  CHECK(block.places({}).empty());
}

TEST_CASE("elements are cut into blocks without loss, and no block is longer than it may be") {
  const Intervals elements{{0, 7}, {9, 10}, {100, 123}};
  for (std::int64_t most = 1; most < 40; ++most) {
    for (std::int64_t stretches = 1; stretches < 6; ++stretches) {
      Intervals all;
      for (const Block& block : cut_into_blocks(elements, most, stretches)) {
        CHECK(block.count() >= 1);
        CHECK(static_cast<std::int64_t>(block.count()) < most + stretches);
        for (const Interval& each : block.elements()) {
          CHECK(intersect(all, each).empty());
          all = unite(all, {each});
        }
      }
      CHECK(all == elements);
    }
  }
  CHECK(cut_into_blocks({}, 5, 3).empty());
}

TEST_CASE("every block has a part of each stretch") {
  const std::vector<Block> blocks = cut_into_blocks({{0, 100}}, 10, 5);
  REQUIRE(blocks.size() == 10);
  CHECK(blocks[0].elements() == Intervals{{0, 2}, {20, 22}, {40, 42}, {60, 62}, {80, 82}});
  CHECK(blocks[9].elements() == Intervals{{18, 20}, {38, 40}, {58, 60}, {78, 80}, {98, 100}});
  // Nothing overflows for the largest models.
  const std::vector<Block> large = cut_into_blocks({{0, std::int64_t{1} << 62}}, std::int64_t{1} << 60, 1000);
  CHECK(large.size() == 4);
}
