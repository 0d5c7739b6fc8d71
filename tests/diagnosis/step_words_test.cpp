// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/step_words.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// A schedule on dp 2, pp 3 with these steps behind the backward, and these edits.
Scenario with_last_steps(const std::string& steps, const std::string& edits = "") {
  return read_scenario(std::make_shared<const Source>(Source{
      "test.json",
      scenario_text(
          R"({ "dp": 2, "pp": 3 })", R"([ { "name": "w", "shape": [12], "stage": "all" } ])",
          R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
              steps + R"( ], "edits": [)" + edits + "]")}));
}

/// What a step does.
std::string deed(const std::string& step) {
  const Scenario scenario = with_last_steps(step);
  return diagnosis::deed_of(*scenario.schedule, scenario.schedule->steps.back());
}

/// What is wrong with a key of the step "s", of which these are the keys, where an edit sets it.
std::string wrong(const std::string& keys, const std::string& set, std::string_view key) {
  const std::string step = R"({ "name": "s", )" + keys + " }";
  const Scenario edited = with_last_steps(step, R"({ "set": "s", )" + set + " }");
  const Scenario plain = with_last_steps(step);
  return diagnosis::words_for_key(*plain.schedule, plain.schedule->steps.back(), edited.edits.back(), key);
}

}  // namespace

TEST_CASE("what a step does is said with its parameters and its group") {
  CHECK(deed(R"({ "name": "s", "op": "all_reduce", "over": "dp" })") == "sums the gradients over dp (2 ranks)");
  CHECK(deed(R"({ "name": "s", "op": "reduce_scatter", "over": ["dp", "pp"], "reduce": "avg", "params": ["w"] })") ==
        "averages the gradients of w over dp, pp (6 ranks)");
  CHECK(deed(R"({ "name": "s", "op": "all_gather", "over": { "pp": ["first", "last"] } })") ==
        "hands on the gradients over pp first, last (2 ranks)");
  CHECK(deed(R"({ "name": "s", "op": "broadcast", "over": { "pp": [1] }, "root": 0 })") ==
        "hands on the gradients over pp 1 (1 rank)");
  CHECK(deed(R"J({ "name": "s", "op": "scale", "by": "1 / (dp * pp)" })J") ==
        "multiplies the gradients by 1 / (dp * pp) = 1/6");
  CHECK(deed(R"({ "name": "s", "op": "scale", "by": "1/6", "params": ["w"] })") ==
        "multiplies the gradients of w by 1/6");
  CHECK(deed(R"({ "name": "s", "op": "zero" })") == "clears the buffer");
  CHECK(deed(R"({ "name": "s", "op": "norm", "params": ["w"] })") == "counts the gradients of w in the norm");
  CHECK(deed(R"({ "name": "s", "op": "copy", "from": "grad", "to": "main" })") == "copies grad to main");
  CHECK(
      deed(
          R"({ "name": "m", "op": "zero", "buffer": "main" }, { "name": "s", "op": "accumulate", "from": "main", "to": "grad" })") ==
      "adds main to grad");
  CHECK(deed(R"({ "name": "s", "op": "own", "over": "dp" })") == "says which rank owns which slice");
  CHECK(deed(R"({ "name": "a", "op": "all_reduce", "over": "dp", "async": true }, { "op": "wait", "for": "a" })") ==
        "waits for a");
  const Scenario scenario = with_last_steps(R"({ "name": "s", "op": "zero" })");
  CHECK(diagnosis::deed_of(*scenario.schedule, scenario.schedule->steps.front().steps.front()) == "adds the gradients");
}

TEST_CASE("a group has as many ranks as its axes, or as it lists") {
  const auto ranks = [](const std::string& over) {
    const Scenario scenario = with_last_steps(R"({ "name": "s", "op": "all_reduce", "over": )" + over + " }");
    return diagnosis::ranks_over(*scenario.schedule, scenario.schedule->steps.back().over);
  };
  CHECK(ranks(R"("dp")") == 2);
  CHECK(ranks(R"("tp")") == 1);
  CHECK(ranks(R"(["dp", "pp"])") == 6);
  CHECK(ranks(R"({ "pp": [0, 2] })") == 2);
  const Scenario scenario = with_last_steps(R"({ "name": "s", "op": "zero" })");
  CHECK(diagnosis::ranks_over(*scenario.schedule, std::nullopt) == 0);
}

TEST_CASE("a factor of sizes is a number, one of tokens is not") {
  const Scenario scenario = with_last_steps(R"({ "name": "s", "op": "zero" })");
  const auto of = [&](const char* text) { return diagnosis::factor_text(*scenario.schedule, Expression::parse(text)); };
  CHECK(of("1 / dp") == "1 / dp = 1/2");
  CHECK(of("1/2") == "1/2");
  CHECK(of("pp * dp") == "pp * dp = 6");
  CHECK(of("1 / sum(tokens, dp, micro_batch)") == "1 / sum(tokens, dp, micro_batch)");
  CHECK(diagnosis::factor_text(*scenario.schedule, std::nullopt) == "1");
  CHECK(diagnosis::constant_of(*scenario.schedule, Expression::parse("dp / pp")) == Rational(2, 3));
  CHECK_FALSE(diagnosis::constant_of(*scenario.schedule, Expression::parse("rank.dp == 0")));
  CHECK_FALSE(diagnosis::constant_of(*scenario.schedule, Expression::parse("tokens")));
}

TEST_CASE("what is wrong with a key is said of what it was and of what it should be") {
  const std::string sum = R"("op": "all_reduce", "over": "dp")", scale = R"("op": "scale", "by": 2)";
  CHECK(wrong(scale, R"("by": "1 / dp")", "by") == "multiplies by 2 where 1 / dp = 1/2 is right");
  CHECK(wrong(sum, R"("reduce": "avg")", "reduce") == "sums over dp (2 ranks) what should be averaged");
  CHECK(wrong(sum + R"(, "reduce": "avg")", R"("reduce": "sum")", "reduce") ==
        "averages over dp (2 ranks) what should be summed");
  CHECK(wrong(sum, R"("over": ["dp", "pp"])", "over") == "runs over dp (2 ranks) and should run over dp, pp (6 ranks)");
  CHECK(wrong(sum, R"("op": "reduce_scatter")", "op") == "is an all_reduce and should be a reduce_scatter");
  // With what it did not have before.
  CHECK(wrong(scale, R"("op": "all_reduce", "over": "dp", "by": null)", "op") ==
        "is a scale and should be an all_reduce over dp (2 ranks)");
  CHECK(wrong(sum, R"("op": "scale", "over": null, "by": "1 / dp")", "op") ==
        "is an all_reduce and should be a scale by 1 / dp = 1/2");
  CHECK(wrong(R"("op": "own", "over": "dp")", R"("op": "reduce_scatter")", "op") ==
        "is an own and should be a reduce_scatter");
  CHECK(wrong(scale, R"("params": ["w"])", "params") == "acts on all parameters and should act on w");
  CHECK(wrong(scale + R"(, "params": ["w"])", R"("params": null)", "params") ==
        "acts on w and should act on all parameters");
  CHECK(wrong(scale + R"(, "when": "rank.dp == 0")", R"("when": null)", "when") ==
        "runs only where rank.dp == 0 and should run everywhere");
  CHECK(wrong(scale, R"("when": "rank.dp == 0")", "when") == "runs everywhere and should run only where rank.dp == 0");
  CHECK(wrong(scale + R"(, "when": "rank.dp == 1")", R"("when": "rank.dp == 0")", "when") ==
        "runs where rank.dp == 1 and should run where rank.dp == 0");
  CHECK(wrong(scale + R"(, "only": { "dp": [0] })", R"("only": null)", "only") ==
        "runs only where dp 0 and should run everywhere");
  CHECK(wrong(scale, R"("buffer": "main")", "buffer") == R"(has "buffer": grad and should have main)");
  CHECK(wrong(scale + R"(, "buffer": "main")", R"("buffer": null)", "buffer") ==
        R"(has "buffer": main and should have grad)");
  CHECK(wrong(sum, R"("async": true)", "async") == "should be asynchronous");
  CHECK(wrong(sum + R"(, "async": true)", R"("async": null)", "async") ==
        "is still in flight when its buffers are touched");
  CHECK(wrong(R"("op": "reduce_scatter", "over": "dp")", R"("geometry": { "kind": "flat" })", "geometry.kind") ==
        "cuts the gradients in other places than the steps that use its slices");
  CHECK(wrong(R"("op": "norm", "count": "rank.dp == 0")", R"("count": null)", "count") == R"(should have no "count")");
  CHECK(wrong(R"("op": "norm")", R"("count": "rank.dp == 0")", "count") == R"(should have "count": rank.dp == 0)");
  CHECK(wrong(R"("op": "norm", "count": "rank.dp == 1")", R"("count": "rank.dp == 0")", "count") ==
        R"(has "count": rank.dp == 1 and should have rank.dp == 0)");
}
