// SPDX-License-Identifier: Apache-2.0
#include "lockstep/rational.h"

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "lockstep/diagnostic.h"
#include "tests/catch.h"

using lockstep::InternalError;
using lockstep::Rational;

namespace {

constexpr std::int64_t smallest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t prime61 = (std::uint64_t{1} << 61) - 1;

std::string parsed_number(std::string_view text) {
  const auto value = Rational::parse(text);
  return value ? value->to_string() : "nothing";
}

Rational power_of_two(int exponent) {
  Rational result = 1;
  for (int i = 0; i < exponent; ++i) result *= 2;
  return result;
}

/// Values around every edge of the small form, and beyond it.
std::vector<Rational> awkward_values() {
  std::vector<Rational> values = {0, 1, -1, 2, -3, largest, largest - 1, smallest, smallest + 1};
  for (const std::int64_t n : {std::int64_t{1}, std::int64_t{-7}, largest, smallest}) {
    for (const std::int64_t d : {std::int64_t{2}, std::int64_t{3}, std::int64_t{128}, largest, smallest}) {
      values.emplace_back(n, d);
    }
  }
  values.push_back(power_of_two(63));
  values.push_back(power_of_two(200) + 1);
  values.push_back(Rational(1) / (power_of_two(70) + 1));
  return values;
}

}  // namespace

TEST_CASE("A rational is kept in lowest terms with a positive denominator") {
  CHECK(Rational(6, -4).to_string() == "-3/2");
  CHECK(Rational(-6, -4).to_string() == "3/2");
  CHECK(Rational(0, -5).to_string() == "0");
  CHECK(Rational(0, -5) == Rational(0));
  CHECK(Rational(8, 4).to_string() == "2");
  CHECK(Rational(smallest, smallest).is_one());
  CHECK(Rational(smallest, -1).to_string() == "9223372036854775808");
  CHECK(Rational(1, smallest).to_string() == "-1/9223372036854775808");
  CHECK(Rational(smallest, 2).to_string() == "-4611686018427387904");
}

TEST_CASE("Denominator 0 and division by 0 are broken invariants") {
  CHECK_THROWS_AS(Rational(1, 0), InternalError);
  CHECK_THROWS_AS(Rational(1) / Rational(0), InternalError);
}

TEST_CASE("Operations that overflow 64 bits stay exact and come back to the small form") {
  CHECK((Rational(largest) + 1).to_string() == "9223372036854775808");
  CHECK((Rational(smallest) - 1).to_string() == "-9223372036854775809");
  CHECK((-Rational(smallest)).to_string() == "9223372036854775808");
  CHECK((-(-Rational(smallest))).to_int64() == smallest);
  CHECK(Rational(largest) + 1 - 1 == Rational(largest));
  CHECK((Rational(largest) * Rational(largest)).to_string() == "85070591730234615847396907784232501249");
  CHECK(Rational(largest) * Rational(largest) / Rational(largest) == Rational(largest));
  CHECK((Rational(1, largest) + Rational(1, largest - 1)).to_string() ==
        "18446744073709551613/85070591730234615838173535747377725442");
  CHECK(Rational(1, smallest) / Rational(1, smallest) == Rational(1));
}

TEST_CASE("Field laws hold at every edge of the small form") {
  const std::vector<Rational> values = awkward_values();
  for (const Rational& a : values) {
    CHECK(a - a == Rational(0));
    CHECK(-(-a) == a);
    CHECK(Rational::parse(a.to_string()) == a);
    CHECK(a.numerator() / a.denominator() == a);
    CHECK_FALSE(a.denominator().is_negative());
    const Rational floor = a.floor();
    CHECK(floor.is_integer());
    CHECK((floor <= a && a < floor + 1));
    for (const Rational& b : values) {
      INFO(a.to_string() << " and " << b.to_string());
      CHECK(a + b == b + a);
      CHECK(a + b - b == a);
      CHECK((a + b).hash() == (b + a).hash());
      CHECK((a < b) == (a - b).is_negative());
      CHECK(((a < b) + (b < a) + (a == b)) == 1);
      if (!b.is_zero()) CHECK(a / b * b == a);
      for (const Rational& c : {values[3], values[15], values.back()}) CHECK(a * (b + c) == a * b + a * c);
    }
  }
}

TEST_CASE("A long number times a short one, and its numerator, take no time of its digits squared") {
  Rational factorial = 1;
  for (int i = 2; i < 5'000; ++i) factorial *= Rational(i, 7);
  CHECK(factorial.denominator().to_int64() == std::nullopt);
  CHECK(factorial.numerator() / factorial.denominator() == factorial);
  for (int i = 2; i < 5'000; ++i) factorial *= Rational(7, i);
  CHECK(factorial.is_one());
}

TEST_CASE("Text is read exactly") {
  CHECK(parsed_number("12") == "12");
  CHECK(parsed_number("-3/4") == "-3/4");
  CHECK(parsed_number("6/4") == "3/2");
  CHECK(parsed_number("0.1") == "1/10");
  CHECK(parsed_number("-0.125") == "-1/8");
  CHECK(parsed_number("5e8") == "500000000");
  CHECK(parsed_number("1.5E+1") == "15");
  CHECK(parsed_number("25e-2") == "1/4");
  CHECK(parsed_number("-0") == "0");
  CHECK(parsed_number("-0.0e5") == "0");
  CHECK(parsed_number("010") == "10");
  CHECK(parsed_number("-9223372036854775808") == "-9223372036854775808");
  CHECK(parsed_number("1e400").size() == 401);
  CHECK(parsed_number("1e-400").size() == 403);
}

TEST_CASE("Text that is no number gives nothing") {
  for (const char* text :
       {"",    "-",  "+1", " 1",   "1 ",    "1.",    ".5",   "1e",  "1e+", "1e401", "1e-401", "1e99999999999",
        "1/0", "1/", "/2", "1/-2", "1.5/2", "1/2e3", "0x10", "nan", "inf", "1,5",   "--1",    "1e5.0"}) {
    INFO(text);
    CHECK(parsed_number(text) == "nothing");
  }
  CHECK(parsed_number(std::string(10'001, '1')) == "nothing");
}

TEST_CASE("Whole numbers that fit become integers") {
  CHECK(Rational(smallest).to_int64() == smallest);
  CHECK(Rational(1, 2).to_int64() == std::nullopt);
  CHECK((Rational(largest) + 1).to_int64() == std::nullopt);
  CHECK(Rational(-7, 2).floor() == Rational(-4));
  CHECK(Rational(7, 2).floor() == Rational(3));
}

TEST_CASE("The least common multiple may outgrow 64 bits") {
  CHECK(Rational::lcm(4, 6) == Rational(12));
  CHECK(Rational::lcm(128, 384) == Rational(384));
  CHECK(Rational::lcm(largest, largest - 1) == Rational(largest) * Rational(largest - 1));
  CHECK(Rational::lcm(power_of_two(80), 3) == power_of_two(80) * 3);
  CHECK_THROWS_AS(Rational::lcm(0, 3), InternalError);
  CHECK_THROWS_AS(Rational::lcm(Rational(1, 2), 3), InternalError);
}

TEST_CASE("Residues modulo 2^61 - 1 follow the field's laws") {
  CHECK(Rational(-1).modulo_prime61() == prime61 - 1);
  CHECK(Rational(static_cast<std::int64_t>(prime61)).modulo_prime61() == 0U);
  CHECK(Rational(smallest).modulo_prime61() == prime61 - 4);
  CHECK(power_of_two(61).modulo_prime61() == 1U);
  CHECK((-power_of_two(122)).modulo_prime61() == prime61 - 1);
  CHECK(Rational(1, 2).modulo_prime61() == (prime61 + 1) / 2);
  CHECK(Rational(1, static_cast<std::int64_t>(prime61)).modulo_prime61() == std::nullopt);
  for (const Rational& a : awkward_values()) {
    const auto residue = a.modulo_prime61();
    REQUIRE(residue);
    CHECK(*residue < prime61);
    CHECK((a - static_cast<std::int64_t>(*residue)).modulo_prime61() == 0U);
  }
}

TEST_CASE("Bits are the logarithm of the absolute value, rounded up") {
  for (const auto& [value, bits] : std::vector<std::pair<Rational, int>>{{0, 0},
                                                                         {1, 0},
                                                                         {-1, 0},
                                                                         {2, 1},
                                                                         {3, 2},
                                                                         {4, 2},
                                                                         {-5, 3},
                                                                         {smallest, 63},
                                                                         {largest, 63},
                                                                         {Rational(1, 3), 0},
                                                                         {Rational(3, 2), 1},
                                                                         {Rational(9, 4), 2}}) {
    INFO(value.to_string());
    CHECK(value.bits() == bits);
  }
  CHECK(power_of_two(100).bits() == 100);
  CHECK((power_of_two(100) + 1).bits() == 101);
  CHECK((power_of_two(100) / 3).bits() == 99);
  CHECK((Rational(1) / power_of_two(100)).bits() == 0);
}

TEST_CASE("Sums of random fractions do not depend on their order") {
  std::mt19937_64 random(7);
  std::vector<Rational> values;
  for (int i = 0; i < 60; ++i) {
    values.emplace_back(static_cast<std::int64_t>(random()) >> (random() % 60),
                        static_cast<std::int64_t>(random() % 100'000) + 1);
  }
  Rational forward, backward;
  for (std::size_t i = 0; i < values.size(); ++i) {
    forward += values[i];
    backward += values[values.size() - 1 - i];
  }
  CHECK(forward == backward);
  CHECK(forward.hash() == backward.hash());
  CHECK(std::hash<Rational>()(forward) == forward.hash());
}
