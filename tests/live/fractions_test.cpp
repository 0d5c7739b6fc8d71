// SPDX-License-Identifier: Apache-2.0
#include "src/live/fractions.h"

#include <cmath>
#include <random>

#include "tests/catch.h"

using namespace lockstep;
using live::nearest_fraction;

TEST_CASE("numbers near a fraction are that fraction, with the smallest denominator that the tolerance allows") {
  CHECK(nearest_fraction(0.3331, 0.0004) == Rational(1, 3));
  CHECK(nearest_fraction(-0.50001, 0.0001) == Rational(-1, 2));
  CHECK(nearest_fraction(0.00002, 0.0001) == Rational(0));
  CHECK(nearest_fraction(65536.02, 0.05) == Rational(65536));
  CHECK(nearest_fraction(0.4285714, 1e-6) == Rational(3, 7));
  CHECK(nearest_fraction(1.0 / 1536, 1e-9) == Rational(1, 1536));
  CHECK(nearest_fraction(2, 0) == Rational(2));
}

TEST_CASE("what may be near a fraction by chance is none") {
  CHECK_FALSE(nearest_fraction(0.3331, 0.2));
  // Of numbers this near to a fraction with a denominator up to 7 are 15 % on a line, and 9 %.
  CHECK_FALSE(nearest_fraction(3.0 / 7, 0.005));
  CHECK(nearest_fraction(3.0 / 7, 0.003) == Rational(3, 7));
  CHECK_FALSE(nearest_fraction(std::sqrt(2) - 1, 1e-5));
  CHECK_FALSE(nearest_fraction(0, 0.5));
  CHECK_FALSE(nearest_fraction(NAN, 0.1));
  CHECK_FALSE(nearest_fraction(INFINITY, 0.1));
  CHECK_FALSE(nearest_fraction(1e300, 1));
  std::mt19937_64 generator(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  int found = 0;
  for (int i = 0; i < 2000; ++i) found += nearest_fraction(uniform(generator), 1e-5) ? 1 : 0;
  CHECK(found < 400);
}
