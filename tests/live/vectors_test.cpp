// SPDX-License-Identifier: Apache-2.0
#include "src/live/vectors.h"

#include <cmath>
#include <limits>

#include "tests/catch.h"

namespace lockstep::live {

TEST_CASE("the length of a vector does not overflow on the way") {
  CHECK(length({3, -4}) == 5);
  CHECK(length({}) == 0);
  CHECK(length({0, 0}) == 0);
  CHECK(length({3e300, 4e300}) == Approx(5e300));
  CHECK(length({3e-300, 4e-300}) == Approx(5e-300));
  CHECK(energy({3e300, 4e300}) == std::numeric_limits<double>::infinity());
  CHECK(length({1, -std::numeric_limits<double>::infinity()}) == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(length({1, std::numeric_limits<double>::quiet_NaN(), 2})));
}

TEST_CASE("vectors are added, taken from each other and looked at element by element") {
  Vector sum = {1, 2};
  add(sum, {10, 20});
  CHECK(sum == Vector{11, 22});
  CHECK(difference(sum, {1, 2}) == Vector{10, 20});
  CHECK(difference({11, 22, 33}, {1, 2, 3}) == Vector{10, 20, 30});
  CHECK(scaled(sum, -2) == Vector{-22, -44});
  CHECK(energy(sum) == 605);
  CHECK(largest({1, -3, 2}) == 3);
  CHECK(is_zero({0, -0.0}));
  CHECK(!is_zero({0, 1e-320}));
  CHECK(is_finite({1, 2}));
  CHECK(!is_finite({1, std::numeric_limits<double>::infinity()}));
}

}  // namespace lockstep::live
