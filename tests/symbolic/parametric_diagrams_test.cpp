// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "src/symbolic/parametric/diagrams.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::parametric;

namespace {

Variable size(Axis axis) {
  Variable variable;
  variable.axis = axis;
  return variable;
}

/// One level, whose size is open, with an owner and the constants 0 and 3.
std::vector<Level> one_level(Polynomials& polynomials) {
  Level level;
  level.axis = Axis::dp;
  level.axes = {Axis::dp};
  level.size = 4;
  level.open = true;
  level.least = 2;
  level.polynomial = polynomials.variable(size(Axis::dp));
  level.owners = {0};
  level.constants = {0, 3};
  level.partitions = Partitions(1, 2, level.names(), 1000);
  return {level};
}

/// The partition of names at these coordinates: rank, contributor, owner, then the constants.
int partition_at(const Partitions& partitions, const std::vector<int>& coordinates) {
  for (int number = 0; number < partitions.size(); ++number) {
    bool fits = true;
    for (std::size_t a = 0; a < coordinates.size() && fits; ++a) {
      for (std::size_t b = 0; b < a && fits; ++b) {
        fits = partitions.equal(number, static_cast<int>(a), static_cast<int>(b)) == (coordinates[a] == coordinates[b]);
      }
    }
    if (fits) return number;
  }
  return -1;
}

int value_at(const Diagrams& diagrams, int diagram, int partition) {
  int value = 0;
  diagrams.visit(diagram, true, [&](const Diagrams::Path& path) {
    if (path.partitions[0] >= 0 && path.partitions[0] != partition) return true;
    value = path.value;
    return false;
  });
  return value;
}

Rational number(const Polynomials& polynomials, int value, int n) {
  return polynomials.evaluate(value, [n](const Variable&) { return Rational(n); });
}

}  // namespace

TEST_CASE("set partitions are counted by Bell's numbers, without those in which constants meet", "[parametric]") {
  CHECK(Partitions(0, 0, 9, 1000).size() == 2);
  CHECK(Partitions(1, 0, 9, 1000).size() == 5);
  CHECK(Partitions(2, 0, 9, 1000).size() == 15);
  CHECK(Partitions(3, 0, 9, 1000).size() == 52);
  CHECK(Partitions(0, 1, 9, 1000).size() == 5);
  CHECK(Partitions(0, 2, 9, 1000).size() == 10);  // 15 less the 5 in which the two are one
  CHECK(Partitions(1, 0, 2, 1000).size() == 4);   // not all three apart: there are two coordinates
  CHECK(Partitions(3, 0, 9, 51).size() == 0);     // more than the limit
}

// The sum over a group, against every coordinate counted one by one.
TEST_CASE("a sum over the rank is right for every size", "[parametric]") {
  Polynomials polynomials;
  Diagrams diagrams(polynomials, one_level(polynomials));
  const Partitions& partitions = diagrams.at_level(0).partitions;
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    int function = 0;
    for (int term = 0; term < 4; ++term) {
      const auto name = [&] { return static_cast<int>(random() % 5); };
      const int condition = diagrams.multiply(diagrams.equal(0, name(), name()),
                                              diagrams.complement(diagrams.equal(0, rank_name, name())));
      const int factor = polynomials.add(polynomials.constant(Rational(static_cast<std::int64_t>(random() % 7))),
                                         polynomials.variable(size(Axis::dp)));
      function = diagrams.add(function, diagrams.times(condition, factor));
    }
    const int sum = diagrams.sum(function, 0);
    for (int n = 4; n <= 7; ++n) {
      for (int contributor = 0; contributor < n; ++contributor) {
        for (int owner = 0; owner < n; ++owner) {
          Rational expected;
          for (int rank = 0; rank < n; ++rank) {
            const int at = partition_at(partitions, {rank, contributor, owner, 0, 3});
            expected += number(polynomials, value_at(diagrams, function, at), n);
          }
          const int anywhere = partition_at(partitions, {n - 1, contributor, owner, 0, 3});
          REQUIRE(number(polynomials, value_at(diagrams, sum, anywhere), n) == expected);
        }
      }
    }
  }
}

TEST_CASE("another rank is put in the rank's place", "[parametric]") {
  Polynomials polynomials;
  Diagrams diagrams(polynomials, one_level(polynomials));
  const int owner = diagrams.at_level(0).owner_name(0);
  // What the owner holds where a rank holds only its own contribution.
  const int own = diagrams.equal(0, rank_name, contributor_name);
  CHECK(diagrams.at(own, 0, owner) == diagrams.equal(0, owner, contributor_name));
  CHECK(diagrams.at(own, 0, contributor_name) == 1);
  CHECK(diagrams.any(own, 0) == 1);
  CHECK(diagrams.sum(own, 0) == 1);
  CHECK(diagrams.sum(1, 0) == diagrams.constant(polynomials.variable(size(Axis::dp))));
}

TEST_CASE("polynomials are equal exactly when their numbers are", "[parametric]") {
  Polynomials polynomials;
  const int n = polynomials.variable(size(Axis::dp)), m = polynomials.variable(size(Axis::tp));
  const int sum = polynomials.add(n, m);
  CHECK(polynomials.multiply(sum, sum) ==
        polynomials.add(
            polynomials.multiply(n, n),
            polynomials.add(polynomials.multiply(m, m),
                            polynomials.multiply(polynomials.constant(Rational(2)), polynomials.multiply(n, m)))));
  CHECK(polynomials.multiply(n, *polynomials.inverse(n)) == 1);
  CHECK(polynomials.subtract(sum, sum) == 0);
  CHECK_FALSE(polynomials.inverse(sum));
  CHECK(polynomials.to_string(polynomials.multiply(
            polynomials.subtract(n, 1), *polynomials.inverse(polynomials.multiply(n, m)))) == "-1/(dp*tp) + 1/tp");
}

TEST_CASE("signs over all sizes from the least on", "[parametric]") {
  Polynomials polynomials;
  const int n = polynomials.variable(size(Axis::dp));
  const auto constant = [&](int value) { return polynomials.constant(Rational(value)); };
  const auto signs = [&](int value, int least, std::optional<int> most = std::nullopt) {
    const Signs found = polynomials.signs(value, [&](const Variable&) { return Span{least, most}; });
    return std::string(found.negative ? "-" : "") + (found.zero ? "0" : "") + (found.positive ? "+" : "");
  };
  CHECK(signs(polynomials.subtract(n, constant(1)), 2) == "+");
  CHECK(signs(polynomials.subtract(n, constant(2)), 2) == "0+");
  CHECK(signs(polynomials.subtract(constant(1), n), 2) == "-");
  CHECK(signs(polynomials.subtract(n, constant(3)), 2) == "-0+");
  CHECK(signs(polynomials.subtract(1, *polynomials.inverse(n)), 1) == "0+");
  CHECK(signs(0, 1) == "0");
  CHECK(signs(polynomials.subtract(n, constant(5)), 2, 4) == "-");
  CHECK(signs(polynomials.subtract(n, constant(5)), 2, 5) == "-0");
  CHECK(signs(polynomials.subtract(n, constant(5)), 2, 6) == "-0+");
}
