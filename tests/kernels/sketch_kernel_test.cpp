// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/host_launch.h"
#include "kernels/sketch.h"
#include "lockstep/sketch.h"
#include "src/numeric/mix.h"
#include "tests/catch.h"
#include "tests/kernels/stored.h"

using namespace lockstep;
using namespace lockstep::kernels;
using namespace lockstep::test;

// The sketch's kernel on the host's launch layer, held against the host's sketch, digit by digit.

namespace {

void add(Sketch& sketch, const std::vector<float>& values, std::uint64_t first) {
  sketch.add(values.data(), values.size(), first);
}
void add(Sketch& sketch, const std::vector<double>& values, std::uint64_t first) {
  sketch.add(values.data(), values.size(), first);
}
void add(Sketch& sketch, const std::vector<Bfloat16>& values, std::uint64_t first) {
  for (std::size_t i = 0; i < values.size(); ++i) sketch.add_bfloat16(&values[i].bits, 1, first + i);
}
void add(Sketch& sketch, const std::vector<Float16>& values, std::uint64_t first) {
  for (std::size_t i = 0; i < values.size(); ++i) sketch.add_float16(&values[i].bits, 1, first + i);
}

/// Any patterns at all: the smallest and the largest numbers, infinities and no numbers among them.
template <class Stored>
std::vector<Stored> patterns(std::size_t count, std::uint64_t seed) {
  std::vector<Stored> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t drawn = numeric::splitmix(seed, i);
    std::memcpy(&result[i], &drawn, sizeof(Stored));
    if (i % 11 == 5) std::memset(&result[i], 0, sizeof(Stored));
    if (i % 13 == 7) std::memset(&result[i], 0x01, sizeof(Stored));
  }
  return result;
}

}  // namespace

TEMPLATE_TEST_CASE("the sketch's kernel gives the host's sketch", "", float, double, Bfloat16, Float16) {
  std::uint64_t non_finite = 0;
  for (const std::size_t size : {0, 1, 2, 3, 7, 31, 63, 64, 65, 127, 509, 1031, 5003}) {
    for (const unsigned sums : {64u, 320u}) {
      const std::uint64_t first = (std::uint64_t{1} << 32) - size / 2, seed = size + sums;
      const std::vector<TestType> values = patterns<TestType>(size, seed);
      Sketch expected(static_cast<int>(sums), seed);
      add(expected, values, first);
      for (const bool in_block : {false, true}) {
        INFO(size << " elements, " << sums << " sums, " << in_block);
        using Kernel = SketchKernel<TestType>;
        std::vector<Together<TestType, pack<TestType>>> memory(size / pack<TestType> + 1);
        if (size > 0) std::memcpy(memory.data(), values.data(), size * sizeof(TestType));
        std::vector<std::uint64_t> digits(sums * Kernel::window.count);
        std::uint64_t infinite = 0;
        const Kernel kernel{memory.front().at, size,      first,   numeric::splitmix(seed, 2048), sums,
                            digits.data(),     &infinite, in_block};
        launch_on_host(kernel, 3, 64, in_block ? Kernel::bytes(sums) : 0, static_cast<unsigned>(size));
        Sketch found(static_cast<int>(sums), seed);
        std::vector<std::int64_t> signed_digits(digits.begin(), digits.end());
        found.add_digits(signed_digits.data(), static_cast<int>(Kernel::window.first),
                         static_cast<int>(Kernel::window.count));
        found.add_non_finite(infinite);
        REQUIRE(found == expected);
        non_finite += infinite;
      }
    }
  }
  CHECK(non_finite > 0);
}
