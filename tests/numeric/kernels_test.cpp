// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/kernels.h"

#include <cmath>
#include <vector>

#include "tests/catch.h"

using namespace lockstep::numeric;

TEST_CASE("what bfloat16 can hold stays as it is, and nothing is lost") {
  std::vector<float> values = {0, -0.0f, 1, -256, 255, 1.5f, 0x1p-100f, 0x1.fep+100f};
  const std::vector<float> before = values;
  CHECK(round_to_bfloat16(values.data(), values.size()));
  CHECK(values == before);
}

TEST_CASE("every number of float16 fits, the neighbours between them do not, and their patterns are hashed") {
  for (unsigned pattern = 0; pattern < 0x7C00; ++pattern) {
    const int exponent = static_cast<int>(pattern >> 10);
    const float size = exponent == 0 ? std::ldexp(static_cast<float>(pattern), -24)
                                     : std::ldexp(static_cast<float>(1024 + pattern % 1024), exponent - 25);
    for (const float value : {size, -size}) {
      const auto bits = static_cast<std::uint16_t>(pattern | (std::signbit(value) ? 0x8000u : 0));
      REQUIRE(fits_float16(&value, 1));
      REQUIRE(hash(&value, 1, 77, lockstep::Arithmetic::float16) == lockstep::hash_float16(&bits, 1, 77));
      const float next = std::nextafter(value, 1e6f);
      REQUIRE_FALSE(fits_float16(&next, 1));
    }
  }
  for (const float value : {65536.0f, -65536.0f, 0x1p-25f, 0x1.8p-24f, 2049.0f, 65519.0f}) {
    const std::vector<float> values = {1, value, 2};
    CHECK_FALSE(fits_float16(values.data(), values.size()));
  }
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
