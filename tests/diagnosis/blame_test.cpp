// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

const Blame& only(const CheckResult& result) {
  REQUIRE(result.blame.size() == 1);
  return result.blame.front();
}

bool says(const std::vector<std::string>& sentences, const std::string& part) {
  return std::any_of(sentences.begin(), sentences.end(),
                     [&](const std::string& sentence) { return sentence.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("blame names the slices that an earlier step left stale, and who owns them") {
  const CheckResult result = check_text(megatron_844());
  const Blame& blame = only(result);
  CHECK(blame.step == "embedding_all_reduce");
  CHECK(blame.why ==
        "adds slices that dp_reduce_scatter left stale: what pp 0 dp 1 gets for its element 40 includes the stale copy "
        "of pp 1 dp 1; the reduced one is on pp 1 dp 0; comes too late: it belongs after micro_batches; rank 1 gets g3 "
        "+ (g0+g1)/2 "
        "of word where (g0+g1+g2+g3)/2 is right");
  REQUIRE(result.repairs.size() == 1);
  CHECK(result.repairs.front().steps == std::vector<std::string>{"embedding_all_reduce"});
}

TEST_CASE("a missing step is blamed under the name of its repair, a factor with its numbers") {
  const CheckResult missing = check_text(two_ranks(R"({ "name": "half", "op": "scale", "by": "1 / dp" })"));
  CHECK(only(missing).step == "dp_all_reduce");
  INFO(only(missing).why);
  CHECK(only(missing).why.starts_with(
      "is missing after half: nothing sums the gradients over dp (2 ranks); rank 0 gets "));
  const CheckResult twice = check_text(two_ranks(
      R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" }, { "name": "half", "op": "scale", "by": "1 / dp" })"));
  CHECK(only(twice).step == "half");
  CHECK(only(twice).why ==
        "is a step too many: it multiplies the gradients by 1 / dp = 1/2, and mean averages over dp (2 ranks) as well; "
        "rank 0 gets (g0+g1)/4 of weight where (g0+g1)/2 is right (half of the right gradient)");
  const CheckResult sum = check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp" })"));
  CHECK(only(sum).why.starts_with("sums over dp (2 ranks) what should be averaged; "));
}

TEST_CASE("an edit that was taken back by hand is blamed by the name that the step had") {
  const CheckResult result = check_text(scenario_text(
      R"({ "dp": 2 })", R"([ { "name": "weight", "shape": [8] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "our_mean", "op": "all_reduce", "over": "dp", "reduce": "avg" } ], "edits": [ { "drop": "our_mean" } ])"));
  CHECK(only(result).step == "our_mean");
}

TEST_CASE("who would not have noticed is said where it is known") {
  const CheckResult sum = check_text(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp" })"));
  CHECK(says(sum.unnoticed, "Every gradient is 2 times the right one, and so is the gradient norm."));
  CHECK(says(sum.unnoticed, "Adam does not notice"));
  CHECK(says(sum.unnoticed, "left after the clip"));
  const CheckResult near = check_text(two_ranks(
      R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" }, { "name": "near", "op": "scale", "by": "21/20" })"));
  CHECK(says(near.unnoticed, "accepts 8 %"));
  const CheckResult missing = check_text(two_ranks(R"({ "name": "half", "op": "scale", "by": "1 / dp" })"));
  CHECK(missing.unnoticed.empty());
}

TEST_CASE("without a search the steps that spoil a gradient are blamed all the same") {
  CheckOptions options;
  options.blame = false;
  const CheckResult traced = check_text(megatron_844(), options);
  CHECK(only(traced).why == "adds up shares with coefficients in a wrong ratio: (g2+g3)/2 becomes g0 + (g2+g3)/2");
  CHECK(traced.repairs.empty());
  options.blame = true;
  options.blame_where_expected = true;
  CHECK(check_text(megatron_844(), options).repairs.empty());
  CHECK(check_text(megatron_844(R"({ "verdict": "mismatch", "blame": ["embedding_all_reduce"] })"), options)
            .repairs.size() == 1);
}

TEST_CASE("for the blame alone the only repair is not tried at other sizes") {
  const std::string text =
      scenario_text(R"({ "dp": 2 })", R"([ { "name": "w", "shape": [4] } ])",
                    R"J([ { "name": "m", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
                     { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" } ],
                   "edits": [ { "drop": "mean" } ])J",
                    R"(, "expect": { "verdict": "mismatch", "blame": ["mean"] })");
  CheckOptions options;
  const CheckResult all = check_text(text, options);
  options.blame_where_expected = true;
  const CheckResult alone = check_text(text, options);
  CHECK(only(all).step == "mean");
  CHECK(only(alone).step == "mean");
  REQUIRE(all.repairs.size() == 1);
  REQUIRE(alone.repairs.size() == 1);
  CHECK(all.repairs.front().sizes > 0);
  CHECK(alone.repairs.front().sizes == 0);
}

TEST_CASE("what a clip goes wrong by is blamed, and not the clip") {
  const std::string norm = R"({ "name": "norm", "op": "norm" })", clip = R"({ "name": "clip", "op": "clip" })";
  const auto blamed = [](const std::string& steps) {
    const CheckResult result = check_text(two_ranks(steps));
    std::string names;
    for (const Blame& blame : result.blame) names += blame.step + " ";
    return names;
  };
  CHECK(blamed(norm + ", " + clip) == "dp_all_reduce ");
  CHECK(blamed(R"({ "name": "sum", "op": "all_reduce", "over": "dp" }, )" + norm + ", " + clip) == "sum ");
  CHECK(blamed(mean_step + ", " + norm + ", " + clip + R"(, { "name": "again", "op": "clip" })") == "again ");
}
