// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/kernels.h"

#include <vector>

#include "tests/catch.h"

using namespace lockstep::numeric;

TEST_CASE("what bfloat16 can hold stays as it is, and nothing is lost") {
  std::vector<float> values = {0, -0.0f, 1, -256, 255, 1.5f, 0x1p-100f, 0x1.fep+100f};
  const std::vector<float> before = values;
  CHECK(round_to_bfloat16(values.data(), values.size()));
  CHECK(values == before);
}

TEST_CASE("what bfloat16 cannot hold is rounded to the nearest, halves to even, and that is told") {
  for (const auto& [value, rounded] :
       {std::pair(257.0f, 256.0f), std::pair(259.0f, 260.0f), std::pair(-257.0f, -256.0f), std::pair(257.5f, 258.0f),
        std::pair(1 + 0x1p-23f, 1.0f)}) {
    std::vector<float> values = {2, value, 4};
    CHECK_FALSE(round_to_bfloat16(values.data(), values.size()));
    CHECK(values == std::vector<float>{2, rounded, 4});
  }
}
