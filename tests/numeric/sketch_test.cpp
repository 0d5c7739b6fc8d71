// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sketch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "src/numeric/mix.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

/// Between -1 and 1, of many sizes.
std::vector<double> drawn(std::size_t count, std::uint64_t seed) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = numeric::splitmix(seed, i);
    values.push_back(std::ldexp(static_cast<double>(bits >> 12) - 0x1p51, -51 - static_cast<int>(bits % 12)));
  }
  return values;
}

template <class Value>
Sketch sketch_of(const std::vector<Value>& values, std::uint64_t first = 0, int sums = 256, std::uint64_t seed = 0) {
  Sketch sketch(sums, seed);
  sketch.add(values.data(), values.size(), first);
  return sketch;
}

/// Coefficients c for which the sum of c[i] * columns[i] comes nearest to `target`: the normal equations, by
/// elimination.
std::vector<double> least_squares(const std::vector<std::vector<double>>& columns, const std::vector<double>& target) {
  const std::size_t n = columns.size();
  std::vector<std::vector<double>> rows(n, std::vector<double>(n + 1));
  const auto product = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) rows[i][j] = product(columns[i], columns[j]);
    rows[i][n] = product(columns[i], target);
  }
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t pivot = i;
    for (std::size_t j = i; j < n; ++j) pivot = std::abs(rows[j][i]) > std::abs(rows[pivot][i]) ? j : pivot;
    std::swap(rows[i], rows[pivot]);
    for (std::size_t j = 0; j < n; ++j) {
      const double factor = rows[j][i] / rows[i][i];
      for (std::size_t k = i; k <= n && j != i; ++k) rows[j][k] -= factor * rows[i][k];
    }
  }
  std::vector<double> result;
  for (std::size_t i = 0; i < n; ++i) result.push_back(rows[i][n] / rows[i][i]);
  return result;
}

}  // namespace

TEST_CASE("sketches have the values of docs/sketch.md") {
  std::vector<double> whole, tenths, far;
  for (int i = 0; i < 1000; ++i) whole.push_back(i * i % 17 - 8);
  for (int i = 0; i < 300; ++i) tenths.push_back(0.1 * i);
  for (int i = 0; i < 50; ++i) far.insert(far.end(), {1e300, 1e-300, 5e-324});
  const auto require = [](const Sketch& sketch, double first, double second, double last) {
    const std::vector<double> values = sketch.values();
    CHECK(values[0] == first);
    CHECK(values[1] == second);
    CHECK(values[63] == last);
  };
  require(sketch_of(whole, 0, 64), -21, -13, -33);
  require(sketch_of(whole, 0, 256), -8, 6, -7);
  require(sketch_of(tenths, (std::uint64_t{1} << 32) - 100, 64, 7), -0x1.0333333333334p+5, 0x1.9p+5,
          0x1.1d9999999999ap+5);
  require(sketch_of(far, 0, 64), 0x1.56e1fc2f8f359p-997, -0x1.7e43c8800759cp+996, -0x1.7e43c8800759cp+996);
  CHECK(sketch_of(std::vector<double>{1}).values()[172] == -1);
}

TEST_CASE("the sketch of a tensor is the sum of those of its shards, in any order and to the last digit") {
  for (const std::size_t size : {0, 1, 2, 63, 64, 65, 509, 4099}) {
    const std::vector<double> values = drawn(size, size);
    const std::uint64_t first = (std::uint64_t{1} << 32) - size / 2;
    const Sketch whole = sketch_of(values, first);
    for (const std::size_t cut : {std::size_t{0}, size / 3, size / 2, size}) {
      const std::vector<double> front(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(cut));
      const std::vector<double> back(values.begin() + static_cast<std::ptrdiff_t>(cut), values.end());
      Sketch sum = sketch_of(back, first + cut);
      sum += sketch_of(front, first);
      CHECK(sum == whole);
    }
    Sketch opposite = whole;
    std::vector<double> negative;
    for (const double value : values) negative.push_back(-value);
    opposite += sketch_of(negative, first);
    CHECK(opposite == Sketch());
  }
}

TEST_CASE("sums are exact before they are rounded once") {
  const std::uint64_t step = 64;  // one sum takes one element of each block of 64, by where it stands in it
  Sketch sketch(64);
  std::vector<double> expected(64);
  // A large number, and its opposite at a place with the same sum and sign, leave the small one as it was.
  for (std::uint64_t index = 0; index < 400 * step; ++index) {
    const double one = 1;
    Sketch alone(64);
    alone.add(&one, 1, index);
    const std::vector<double> values = alone.values();
    const double sign = values[5];
    if (sign == 0) continue;
    const double value = sign * (expected[5] == 0 ? 1e300 : expected[5] == 1 ? 0x1p-1074 : -1e300);
    sketch.add(&value, 1, index);
    if (++expected[5] == 3) break;
  }
  REQUIRE(expected[5] == 3);
  CHECK(sketch.values()[5] == 0x1p-1074);
}

TEST_CASE("a sum is rounded to the nearest number, in the middle to the even one") {
  const double one = 1;
  Sketch alone(64);
  alone.add(&one, 1, 0);
  const std::vector<double> values = alone.values();
  const std::size_t at = static_cast<std::size_t>(
      std::find_if(values.begin(), values.end(), [](double value) { return value != 0; }) - values.begin());
  REQUIRE(at < values.size());
  const auto sum = [&](const std::vector<double>& terms) {
    Sketch sketch(64);
    for (const double term : terms) sketch.add(&term, 1, 0);
    return values[at] * sketch.values()[at];
  };
  CHECK(sum({0x1p53, 1}) == 0x1p53);
  CHECK(sum({0x1p53, 3}) == 0x1p53 + 4);
  CHECK(sum({0x1p53, 1, 0x1p-100}) == 0x1p53 + 2);
  CHECK(sum({0x1p53, 1, -0x1p-100}) == 0x1p53);
  CHECK(sum({0x1p53, 3, -0x1p-100}) == 0x1p53 + 2);
  CHECK(sum({-0x1p53, -1}) == -0x1p53);
  CHECK(sum({0x1p54 - 2, 1}) == 0x1p54);  // one digit more
}

TEST_CASE("every type is sketched by its values, and what is no number is counted") {
  std::vector<std::uint16_t> bfloat16, float16;
  std::vector<double> of_bfloat16, of_float16;
  for (int i = -60; i <= 60; ++i) {
    const float value = static_cast<float>(i) * 0.25f;
    bfloat16.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
    of_bfloat16.push_back(value);
  }
  float16 = {0x0001, 0x03FF, 0x0400, 0x3C00, 0xC000, 0x7BFF, 0x8001};
  of_float16 = {0x1p-24, 1023 * 0x1p-24, 0x1p-14, 1, -2, 65504, -0x1p-24};
  Sketch first, second;
  first.add_bfloat16(bfloat16.data(), bfloat16.size(), 3);
  CHECK(first == sketch_of(of_bfloat16, 3));
  second.add_float16(float16.data(), float16.size(), 3);
  CHECK(second == sketch_of(of_float16, 3));
  CHECK(sketch_of(std::vector<float>{1.5f, 2.25f}) == sketch_of(std::vector<double>{1.5, 2.25}));
  const Sketch strange = sketch_of(std::vector<double>{1, INFINITY, NAN, -INFINITY});
  CHECK(strange.non_finite() == 3);
  CHECK(strange.values() == sketch_of(std::vector<double>{1}).values());
  CHECK_THROWS_AS(Sketch(100), std::invalid_argument);
  CHECK_THROWS_AS(Sketch(64) += Sketch(128), std::invalid_argument);
  CHECK_THROWS_AS(Sketch(64, 1) += Sketch(64, 2), std::invalid_argument);
}

TEST_CASE("least squares on sketches recovers the coefficients of a sum, also of rounded gradients") {
  constexpr std::size_t ranks = 8, size = 40'000;
  const std::vector<double> wanted = {0.125, 0.125, 1, 0, 0.25, -0.5, 1.0 / 3, 2};
  std::vector<std::vector<double>> columns;
  std::vector<float> sum(size);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::vector<double> contribution = drawn(size, 100 + rank);
    columns.push_back(sketch_of(contribution).values());
    for (std::size_t i = 0; i < size; ++i) sum[i] += static_cast<float>(wanted[rank] * contribution[i]);
  }
  const std::vector<double> found = least_squares(columns, sketch_of(sum).values());
  for (std::size_t rank = 0; rank < ranks; ++rank) CHECK(std::abs(found[rank] - wanted[rank]) < 1e-5);
}
