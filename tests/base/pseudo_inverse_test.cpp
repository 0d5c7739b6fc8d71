// SPDX-License-Identifier: Apache-2.0
#include "src/base/pseudo_inverse.h"

#include "tests/catch.h"

namespace lockstep {

TEST_CASE("a pseudo-inverse takes a sum of the columns to its coefficients, and what is orthogonal to them to zero") {
  const Columnwise matrix{4, 2, {1, 1, 1, 1, 0, 1, 2, 3}};
  const std::optional<Columnwise> inverse = pseudo_inverse(matrix, 1e-12);
  REQUIRE(inverse);
  REQUIRE(inverse->rows == 2);
  REQUIRE(inverse->columns == 4);
  const auto coefficient = [&](std::size_t row, const std::vector<double>& vector) {
    double sum = 0;
    for (std::size_t i = 0; i < 4; ++i) sum += inverse->elements[i * 2 + row] * vector[i];
    return sum;
  };
  const std::vector<double> line = {5, 7, 9, 11}, orthogonal = {1, -1, -1, 1};
  CHECK(coefficient(0, line) == Approx(5));
  CHECK(coefficient(1, line) == Approx(2));
  CHECK(coefficient(0, orthogonal) == Approx(0).margin(1e-14));
  CHECK(coefficient(1, orthogonal) == Approx(0).margin(1e-14));
}

TEST_CASE("columns that depend on each other have no pseudo-inverse") {
  CHECK(!pseudo_inverse({3, 2, {1, 2, 3, 2, 4, 6}}, 1e-12));
  CHECK(!pseudo_inverse({3, 2, {1, 2, 3, 1, 2, 3.001}}, 1e-2));
  CHECK(pseudo_inverse({3, 2, {1, 2, 3, 1, 2, 3.001}}, 1e-12));
}

}  // namespace lockstep
