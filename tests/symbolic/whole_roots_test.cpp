// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/whole_roots.h"

#include <limits>
#include <random>
#include <set>

#include "tests/cases.h"
#include "tests/catch.h"

using lockstep::Rational;
using lockstep::parametric::whole_roots;

namespace {

using Coefficients = std::vector<Rational>;

/// The product with (x·denominator - numerator).
Coefficients with_root(const Coefficients& coefficients, std::int64_t numerator, std::int64_t denominator) {
  Coefficients result(coefficients.size() + 1);
  for (std::size_t i = 0; i < coefficients.size(); ++i) {
    result[i] += coefficients[i] * Rational(-numerator);
    result[i + 1] += coefficients[i] * Rational(denominator);
  }
  return result;
}

}  // namespace

TEST_CASE("a constant and a line have the whole roots that one sees", "[symbolic][roots]") {
  CHECK(whole_roots({Rational(3)}, 100).empty());
  CHECK(whole_roots({Rational(-4), Rational(1)}, 100) == std::vector<int>{4});
  CHECK(whole_roots({Rational(-4), Rational(1)}, 3).empty());
  CHECK(whole_roots({Rational(-1), Rational(2)}, 100).empty());
  CHECK(whole_roots({Rational(0), Rational(1)}, 100).empty());
  CHECK(whole_roots({Rational(-1), Rational(1, 2097152)}, 1 << 30) == std::vector<int>{2097152});
}

TEST_CASE("roots that touch zero, that are neighbours, and that lie at the ends", "[symbolic][roots]") {
  constexpr int most = std::numeric_limits<int>::max();
  Coefficients touching = with_root(with_root({Rational(1)}, 5, 1), 5, 1);
  CHECK(whole_roots(touching, most) == std::vector<int>{5});
  CHECK(whole_roots(with_root(touching, 6, 1), most) == std::vector<int>{5, 6});
  CHECK(whole_roots(with_root(with_root({Rational(1)}, 1, 1), most, 1), most) == std::vector<int>{1, most});
  touching[0] += Rational(1, 7);  // and now it does not
  CHECK(whole_roots(touching, most).empty());
}

TEST_CASE("a root behind a turn and its return between two whole numbers", "[symbolic][roots]") {
  // Its derivative is (x - 5.1)(x - 5.9), which is above zero at 5 and at 6.
  const Coefficients turning = {Rational(-5454, 100), Rational(3009, 100), Rational(-55, 10), Rational(1, 3)};
  CHECK(whole_roots(turning, 1000) == std::vector<int>{6});
}

TEST_CASE("a product of lines has its whole roots, and no others", "[symbolic][roots]") {
  std::mt19937 random(25);
  const auto draw = [&](int from, int to) {
    return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
  };
  for (unsigned round = 0; round < lockstep::test::cases(300); ++round) {
    Coefficients coefficients = {Rational(draw(1, 5), draw(1, 5))};
    std::set<int> roots;
    for (int factor = draw(1, 6); factor > 0; --factor) {
      const int denominator = draw(0, 3) == 0 ? draw(2, 5) : 1;
      const int numerator = draw(0, 2) == 0 ? draw(1, 1'000'000'000) : draw(-20, 40);
      coefficients = with_root(coefficients, numerator, denominator);
      if (numerator > 0 && numerator % denominator == 0) roots.insert(numerator / denominator);
    }
    if (draw(0, 1) == 0) {  // and one that is never zero: x² + x + 1
      Coefficients more(coefficients.size() + 2);
      for (std::size_t i = 0; i < coefficients.size(); ++i) {
        for (std::size_t power = 0; power < 3; ++power) more[i + power] += coefficients[i];
      }
      coefficients = more;
    }
    CHECK(whole_roots(coefficients, std::numeric_limits<int>::max()) == std::vector<int>(roots.begin(), roots.end()));
  }
}
