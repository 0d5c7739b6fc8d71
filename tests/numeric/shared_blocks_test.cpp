// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/shared_blocks.h"

#include "tests/catch.h"

using namespace lockstep::numeric;

TEST_CASE("a block is shared by copies, begins with a cache line, and is handed out again when nobody holds it") {
  SharedBlocks<float> blocks(10);
  SharedBlocks<float>::Elements none, first = blocks.take(), second = blocks.take();
  CHECK_FALSE(none);
  REQUIRE(first);
  CHECK_FALSE(first == second);
  CHECK(reinterpret_cast<std::uintptr_t>(first.read()) % 64 == 0);
  CHECK_FALSE(first.is_shared());
  first.write()[9] = 7;
  {
    const SharedBlocks<float>::Elements copy = first;
    CHECK(copy == first);
    CHECK(first.is_shared());
    CHECK(copy.read()[9] == 7);
  }
  CHECK_FALSE(first.is_shared());
  const float* const place = first.read();
  none = std::move(first);
  CHECK_FALSE(none.is_shared());
  second = none;  // its own block is free now
  CHECK(second.is_shared());
  CHECK_FALSE(blocks.take().read() == place);
  second = {};
  none = {};
  CHECK(blocks.take().read() == place);
}
