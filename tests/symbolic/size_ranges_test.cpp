// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/size_ranges.h"

#include <map>
#include <memory>

#include "src/expression/node.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::parametric;

namespace {

using Ranges = std::map<std::string, SizeRange>;

SizeRange from_to(int low, int high) { return {Rational(low), Rational(high), false, false}; }

RangeOf looked_up(const Ranges& ranges) {
  return [&ranges](const std::string& name) -> std::optional<SizeRange> {
    const auto found = ranges.find(name);
    return found == ranges.end() ? std::nullopt : std::optional(found->second);
  };
}

/// As mathematicians write it: a round bracket where the bound is not among the numbers.
std::string range_of(const std::string& text, const Ranges& ranges) {
  const std::optional<SizeRange> range = number_in_ranges(Expression::parse(text).tree(), looked_up(ranges));
  if (!range) return "not seen";
  return (range->above_low || !range->low ? "(" : "[") + (range->low ? range->low->to_string() : "-∞") + ", " +
         (range->high ? range->high->to_string() : "∞") + (range->below_high || !range->high ? ")" : "]");
}

std::string truth_of(const std::string& text, const Ranges& ranges) {
  const std::optional<bool> truth = truth_in_ranges(Expression::parse(text).tree(), looked_up(ranges));
  return !truth ? "not seen" : *truth ? "always" : "never";
}

const Ranges known_ranges = {
    {"two", SizeRange::exactly(Rational(2))},
    {"three", SizeRange::exactly(Rational(3))},
    {"n", SizeRange::from(1)},
    {"m", from_to(2, 5)},
    {"some", from_to(0, 4)},
    {"below", from_to(-3, -1)},
    {"around", from_to(-2, 3)},
    {"few", SizeRange{Rational(1), Rational(6), false, true}},
    {"more", SizeRange{Rational(2), {}, true, false}},
};

}  // namespace

TEST_CASE("sums and differences go from what is least to what is most") {
  CHECK(range_of("m + two", known_ranges) == "[4, 7]");
  CHECK(range_of("m - some", known_ranges) == "[-2, 5]");
  CHECK(range_of("n + m", known_ranges) == "[3, ∞)");
  CHECK(range_of("m - n", known_ranges) == "(-∞, 4]");
  CHECK(range_of("-few", known_ranges) == "(-6, -1]");
  CHECK(range_of("few + m", known_ranges) == "[3, 11)");
  CHECK(range_of("more - few", known_ranges) == "(-4, ∞)");
}

TEST_CASE("products hold the signs of both sides") {
  CHECK(range_of("m * some", known_ranges) == "[0, 20]");
  CHECK(range_of("m * below", known_ranges) == "[-15, -2]");
  CHECK(range_of("below * below", known_ranges) == "[1, 9]");
  CHECK(range_of("around * m", known_ranges) == "[-10, 15]");
  CHECK(range_of("m * around", known_ranges) == "[-10, 15]");
  CHECK(range_of("around * around", known_ranges) == "[-6, 9]");
  CHECK(range_of("around * below", known_ranges) == "[-9, 6]");
  CHECK(range_of("n * m", known_ranges) == "[2, ∞)");
  CHECK(range_of("few * two", known_ranges) == "[2, 12)");
}

TEST_CASE("0 is in a product where it is in either side") {
  CHECK(range_of("some * more", known_ranges) == "[0, ∞)");
  CHECK(range_of("few * (two - 2)", known_ranges) == "[0, 0]");
  CHECK(range_of("(more - 2) * m", known_ranges) == "(0, ∞)");
  CHECK(range_of("(two - 2) * n", known_ranges) == "[0, 0]");
  CHECK(range_of("n * (two - 2)", known_ranges) == "[0, 0]");
  CHECK(range_of("(1 - n) * (two - 2)", known_ranges) == "[0, 0]");
}

TEST_CASE("a quotient is seen where what divides has one sign") {
  CHECK(range_of("two / m", known_ranges) == "[2/5, 1]");
  CHECK(range_of("two / n", known_ranges) == "(0, 2]");
  CHECK(range_of("two / few", known_ranges) == "(1/3, 2]");
  CHECK(range_of("two / more", known_ranges) == "(0, 1)");
  CHECK(range_of("two / below", known_ranges) == "[-2, -2/3]");
  CHECK(range_of("two / some", known_ranges) == "not seen");
  CHECK(range_of("two / around", known_ranges) == "not seen");
}

TEST_CASE("floors and ceilings are those of both bounds, and of what lies below a bound that is not reached") {
  CHECK(range_of("floor(m / two)", known_ranges) == "[1, 2]");
  CHECK(range_of("ceil(m / two)", known_ranges) == "[1, 3]");
  CHECK(range_of("floor(few)", known_ranges) == "[1, 5]");
  CHECK(range_of("floor(few / two)", known_ranges) == "[0, 2]");
  CHECK(range_of("floor(n)", known_ranges) == "[1, ∞)");
}

TEST_CASE("the smaller and the larger of numbers") {
  CHECK(range_of("min(m, some)", known_ranges) == "[0, 4]");
  CHECK(range_of("max(m, some)", known_ranges) == "[2, 5]");
  CHECK(range_of("min(n, two)", known_ranges) == "[1, 2]");
  CHECK(range_of("max(n, two)", known_ranges) == "[2, ∞)");
  CHECK(range_of("max(m, some, three)", known_ranges) == "[3, 5]");
}

TEST_CASE("a least common multiple is no less than any of the numbers and no more than their product") {
  CHECK(range_of("lcm(m, two)", known_ranges) == "[2, 10]");
  CHECK(range_of("lcm(three, m)", known_ranges) == "[3, 15]");
  CHECK(range_of("lcm(m, three)", known_ranges) == "[3, 15]");
  CHECK(range_of("lcm(n, three)", known_ranges) == "[3, ∞)");
  CHECK(range_of("lcm(three, n)", known_ranges) == "[3, ∞)");
  CHECK(range_of("lcm(two, three)", known_ranges) == "[6, 6]");
  CHECK(range_of("lcm(4, 6)", known_ranges) == "[12, 12]");
  CHECK(range_of("lcm(some, two)", known_ranges) == "not seen");
  CHECK(range_of("lcm(1/2, two)", known_ranges) == "not seen");
}

TEST_CASE("what a name or a token count is that nothing is known of is not seen") {
  CHECK(range_of("unknown", known_ranges) == "not seen");
  CHECK(range_of("unknown + 1", known_ranges) == "not seen");
  CHECK(range_of("min(two, unknown)", known_ranges) == "not seen");
  CHECK(range_of("lcm(two, unknown)", known_ranges) == "not seen");
  CHECK(truth_of("unknown < 1", known_ranges) == "not seen");
}

TEST_CASE("a comparison holds always, never, or is not seen") {
  CHECK(truth_of("m < 6", known_ranges) == "always");
  CHECK(truth_of("m < 5", known_ranges) == "not seen");
  CHECK(truth_of("m < 2", known_ranges) == "never");
  CHECK(truth_of("m <= 5", known_ranges) == "always");
  CHECK(truth_of("m <= 4", known_ranges) == "not seen");
  CHECK(truth_of("m <= 1", known_ranges) == "never");
  CHECK(truth_of("m > 1", known_ranges) == "always");
  CHECK(truth_of("m > 5", known_ranges) == "never");
  CHECK(truth_of("m >= 2", known_ranges) == "always");
  CHECK(truth_of("m >= 6", known_ranges) == "never");
  CHECK(truth_of("few < 6", known_ranges) == "always");
  CHECK(truth_of("more > 2", known_ranges) == "always");
  CHECK(truth_of("n < m", known_ranges) == "not seen");
  CHECK(truth_of("more <= 2", known_ranges) == "never");
}

TEST_CASE("numbers are equal where each is one, and differ where their ranges lie apart") {
  CHECK(truth_of("two == 2", known_ranges) == "always");
  CHECK(truth_of("two != 2", known_ranges) == "never");
  CHECK(truth_of("m == 6", known_ranges) == "never");
  CHECK(truth_of("6 != m", known_ranges) == "always");
  CHECK(truth_of("m == 1", known_ranges) == "never");
  CHECK(truth_of("m == 5", known_ranges) == "not seen");
  CHECK(truth_of("m != two", known_ranges) == "not seen");
  CHECK(truth_of("m == m", known_ranges) == "always");
  CHECK(truth_of("few == 6", known_ranges) == "never");
  CHECK(truth_of("'ring' == 'tree'", known_ranges) == "never");
  CHECK(truth_of("'ring' == 'ring'", known_ranges) == "always");
  CHECK(truth_of("'ring' != 'tree'", known_ranges) == "always");
}

TEST_CASE("and, or and not of what is known in part") {
  const Ranges flags = {
      {"on", SizeRange::exactly(Rational(1))}, {"off", SizeRange::exactly(Rational(0))}, {"open", from_to(0, 1)}};
  CHECK(truth_of("on", flags) == "always");
  CHECK(truth_of("off", flags) == "never");
  CHECK(truth_of("open", flags) == "not seen");
  CHECK(truth_of("not off", flags) == "always");
  CHECK(truth_of("not open", flags) == "not seen");
  CHECK(truth_of("open and off", flags) == "never");
  CHECK(truth_of("off and open", flags) == "never");
  CHECK(truth_of("open and on", flags) == "not seen");
  CHECK(truth_of("on and on", flags) == "always");
  CHECK(truth_of("open or on", flags) == "always");
  CHECK(truth_of("on or open", flags) == "always");
  CHECK(truth_of("open or off", flags) == "not seen");
  CHECK(truth_of("off or off", flags) == "never");
}

TEST_CASE("parts that stand several times in an expression are looked at once, and numbers without end are not seen") {
  const auto chain = [](const char* sign, const char* name, int length) {
    auto node = expression::name_node(name);
    for (int i = 0; i < length; ++i) node = expression::binary_node(sign, node, node);
    return node;
  };
  const RangeOf range_of = looked_up(known_ranges);
  const auto doubled = number_in_ranges(*chain("+", "m", 40), range_of);
  REQUIRE(doubled);
  CHECK(*doubled->low == Rational(std::int64_t{2} << 40));
  CHECK(*doubled->high == Rational(std::int64_t{5} << 40));
  const auto condition = expression::binary_node(">", chain("+", "m", 40), expression::value_node(Rational(4)));
  auto both = condition;
  for (int i = 0; i < 40; ++i) both = expression::binary_node("and", both, both);
  CHECK(truth_in_ranges(*both, range_of) == true);
  CHECK(truth_in_ranges(*expression::not_node(both), range_of) == false);
  // 5^4 is seen, and of 5^(2^40) that it is longer than a number may be.
  CHECK(*number_in_ranges(*chain("*", "m", 2), range_of)->high == Rational(625));
  CHECK_FALSE(number_in_ranges(*chain("*", "m", 40), range_of)->high);
}
