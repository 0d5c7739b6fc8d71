// SPDX-License-Identifier: Apache-2.0
#include "kernels/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "src/numeric/generator.h"
#include "src/numeric/kernels.h"
#include "src/numeric/prime61.h"
#include "tests/catch.h"
#include "tests/kernels/stored.h"

using namespace lockstep;
using namespace lockstep::kernels;

namespace {

std::vector<std::uint64_t> some_indices() {
  std::vector<std::uint64_t> result;
  for (const std::uint64_t middle :
       {std::uint64_t{8}, std::uint64_t{512}, std::uint64_t{1} << 32, std::uint64_t{3} << 32, std::uint64_t{1} << 40}) {
    for (std::uint64_t i = middle - 8; i < middle + 8; ++i) result.push_back(i);
  }
  return result;
}

std::vector<std::uint64_t> some_residues() {
  std::vector<std::uint64_t> result{0, 1, 2, numeric::prime61 - 1, numeric::prime61 - 2, std::uint64_t{1} << 60};
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) result.push_back(random() % numeric::prime61);
  return result;
}

}  // namespace

TEST_CASE("the generator for one element is that for vectors") {
  for (const std::uint64_t key : {std::uint64_t{0}, numeric::gradient_key(3, 17, 4, 1), ~std::uint64_t{0}}) {
    for (const std::uint64_t index : some_indices()) {
      for (int bits = 0; bits <= numeric::max_generator_bits; ++bits) {
        std::int32_t number = 0;
        numeric::generate(key, bits, index, 1, &number);
        const std::uint64_t of_stretch = stretch_key(key, index >> 32);
        const auto low = static_cast<std::uint32_t>(index);
        REQUIRE(generated(of_stretch, bits, low) == number);
        if (bits <= 23) REQUIRE(generated_float<23>(of_stretch, bits, low) == static_cast<float>(number));
        REQUIRE(generated_float<24>(of_stretch, bits, low) == static_cast<float>(number));
      }
      std::uint64_t residue = 0;
      numeric::generate_residues(key, index, 1, &residue);
      REQUIRE(generated_residue(key, index) == residue);
    }
  }
}

TEST_CASE("powers of two have an exact inverse, and nothing else") {
  for (int power = -1000; power <= 1000; ++power)
    REQUIRE(exact_inverse(std::ldexp(1.0, power)) == std::ldexp(1.0, -power));
  for (int power = -120; power <= 120; ++power)
    REQUIRE(exact_inverse(std::ldexp(1.0f, power)) == std::ldexp(1.0f, -power));
  for (const double other : {0.0, -2.0, 3.0, 1.5, std::ldexp(1.0, -1074), std::ldexp(1.0, 1023),
                             std::nextafter(4.0, 5.0), std::numeric_limits<double>::infinity()}) {
    REQUIRE(exact_inverse(other) == 0);
  }
  for (const float other : {0.0f, -2.0f, 3.0f, 1.5f, std::ldexp(1.0f, -149), std::ldexp(1.0f, 127),
                            std::numeric_limits<float>::infinity()}) {
    REQUIRE(exact_inverse(other) == 0);
  }
}

TEST_CASE("sums and products modulo 2^61 - 1 are those of the host engine") {
  for (const std::uint64_t a : some_residues()) {
    for (const std::uint64_t b : some_residues()) {
      REQUIRE(kernels::add61(a, b) == numeric::add61(a, b));
      REQUIRE(kernels::multiply61(a, b) == numeric::multiply61(a, b));
    }
  }
}

TEST_CASE("16-bit patterns hold what they should, and say what they cannot") {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    if ((pattern & 0x7C00) != 0x7C00) {
      const float value = from_float16(bits);
      bool lost = false;
      REQUIRE(to_float16(value, lost) == bits);
      REQUIRE(!lost);
      REQUIRE(numeric::fits_float16(&value, 1));
    }
    bool lost = false;
    REQUIRE(to_bfloat16(float_of(pattern << 16), lost) == bits);
    REQUIRE(!lost);
  }
  CHECK(from_float16(0x3C01) == 1.0009765625f);
  CHECK(from_float16(0x8001) == -0x1p-24f);
  CHECK(from_float16(0x7BFF) == 65504.0f);
  CHECK(from_float16(0x7C00) == std::numeric_limits<float>::infinity());
  std::mt19937 random(7);
  int fitting = 0, brains = 0;
  for (int i = 0; i < 200'000; ++i) {
    // Few digits and exponents around the limits, so that both answers are frequent.
    const std::uint32_t exponent = 90 + static_cast<std::uint32_t>(random() % 60),
                        digits = static_cast<std::uint32_t>(random() & random() & random() & random() & 0x7FFFFF);
    float value = float_of((static_cast<std::uint32_t>(random()) & 0x80000000u) | exponent << 23 | digits);
    bool lost = false;
    to_float16(value, lost);
    REQUIRE(lost == !numeric::fits_float16(&value, 1));
    fitting += !lost;
    lost = false;
    to_bfloat16(value, lost);
    REQUIRE(lost == !numeric::round_to_bfloat16(&value, 1));
    brains += !lost;
  }
  CHECK(fitting > 10'000);
  CHECK(fitting < 190'000);
  CHECK(brains > 10'000);
}
