// SPDX-License-Identifier: Apache-2.0
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("the overall ratio of a match is 1") {
  CHECK(overall_ratio(check_text(two_ranks(mean_step))) == Rational(1));
}

TEST_CASE("what is wrong by the same factor everywhere has that as overall ratio, whatever else is right") {
  const std::string parameters = R"([ { "name": "bias", "shape": [3] }, { "name": "weight", "shape": [8] } ])";
  const std::string backward = R"({ "name": "each", "op": "each", "steps": [ { "name": "b", "op": "backward" } ] }, )";
  const std::string twice = R"(, { "name": "twice", "op": "scale", "by": "2", "params": ["weight"] })";
  const std::string thrice = R"(, { "name": "thrice", "op": "scale", "by": "3", "params": ["bias"] })";
  const auto ratio = [&](const std::string& more) {
    return overall_ratio(
        check_text(scenario_text(R"({ "dp": 2 })", parameters, "[ " + backward + mean_step + more + " ]")));
  };
  CHECK(ratio(twice) == Rational(2));
  CHECK(ratio(thrice) == Rational(3));
  CHECK(ratio(twice + thrice) == std::nullopt);
}

TEST_CASE("there is no overall ratio where a contribution is missing") {
  CHECK(overall_ratio(check_text(two_ranks(R"({ "name": "half", "op": "scale", "by": "1/2" })"))) == std::nullopt);
}

TEST_CASE("there is no overall ratio where an element reaches no optimizer, nor without values") {
  const CheckResult unowned =
      check_text(two_ranks(R"({ "name": "mean", "op": "reduce", "over": "dp", "root": 0, "reduce": "avg" },
    { "name": "scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg" })"));
  REQUIRE_FALSE(symbolic_of(unowned)->unowned.empty());
  CHECK(overall_ratio(unowned) == std::nullopt);
  const CheckResult deadlock =
      check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "only": { "dp": [0] } })"));
  REQUIRE(deadlock.verdict == Verdict::deadlock);
  CHECK(overall_ratio(deadlock) == std::nullopt);
  CheckResult without_formulas = check_text(two_ranks(mean_step));
  forget(without_formulas, "symbolic");
  CHECK(overall_ratio(without_formulas) == std::nullopt);
}

TEST_CASE("a large layout has an overall ratio, too, unless there are parameters that are not shown") {
  std::string text = two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })");
  const std::string layout = R"({ "dp": 2 })";
  text.replace(text.find(layout), layout.size(), R"({ "dp": 3000 })");
  CheckOptions options;
  options.blame = false;
  CheckResult large = check_text(text, options);
  REQUIRE(sample_of(large) != nullptr);
  REQUIRE(sample_of(large)->not_shown.empty());
  CHECK(overall_ratio(large) == Rational(3000));
}
