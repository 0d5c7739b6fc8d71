// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mechanism.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;
using diagnosis::Candidate;

namespace {

/// Of tp, shares of three gradients; these steps follow the backward.
std::string shares(const std::string& steps, const std::string& edits = "") {
  return scenario_text(
      R"({ "dp": 2, "tp": 2 })",
      R"([ { "name": "norm1", "shape": [4], "partial": ["tp"], "tags": ["norm"] },
           { "name": "norm2", "shape": [4], "partial": ["tp"], "tags": ["norm"] },
           { "name": "router", "shape": [4], "partial": ["tp"] }, { "name": "whole", "shape": [4] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
          steps + R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" } ], "edits": [)" + edits +
          "]");
}

/// The blame for an edit that repairs the steps.
Blame blamed(const std::string& steps, Candidate::Kind kind, const std::string& step, const std::string& edit) {
  CheckOptions options;
  options.host = options.blame = options.divergences = false;
  const CheckResult result = check_text(shares(steps), options);
  REQUIRE(result.verdict == Verdict::mismatch);
  const Scenario edited = read_scenario(std::make_shared<const Source>(Source{"edited.json", shares(steps, edit)}));
  Candidate candidate;
  candidate.kind = kind;
  candidate.step = step;
  candidate.edit = edited.edits.back();
  return diagnosis::mechanism_of(result, candidate);
}

std::string insert(const std::string& keys, const std::string& place = R"("after": "micro_batches")") {
  return R"({ "insert": { "name": "new", "op": "all_reduce", )" + keys + " }, " + place + " }";
}

/// What it does, in words that begin so; the rest tells of numbers.
void check_blame(const Blame& blame, const std::string& step, const std::string& why) {
  INFO(blame.step << ": " << blame.why);
  CHECK(blame.step == step);
  CHECK(blame.why.starts_with(why));
}

const std::string sum_of_norms = R"({ "name": "norms", "op": "all_reduce", "over": "tp", "params": ["tag:norm"] }, )";

}  // namespace

TEST_CASE("a step that leaves out parameters is blamed for those that a repair adds another step for") {
  const auto added = [](const std::string& keys) {
    return blamed(sum_of_norms, Candidate::Kind::insert, "new", insert(keys));
  };
  const std::string nothing = ": nothing sums the gradients";
  check_blame(added(R"("over": "tp", "params": ["router"])"), "norms",
              "leaves out router" + nothing + " of router over tp (2 ranks), and each tp rank keeps its own share; ");
  // One that is wrong is named, whatever else the step would be for.
  check_blame(added(R"("over": "tp", "params": ["!tag:norm"])"), "norms", "leaves out router" + nothing);
  const std::string one = R"({ "name": "norms", "op": "all_reduce", "over": "tp", "params": ["norm1"] }, )";
  check_blame(blamed(one, Candidate::Kind::insert, "new", insert(R"("over": "tp", "params": ["!norm1"])")), "norms",
              "leaves out !norm1" + nothing);
  check_blame(blamed(one, Candidate::Kind::insert, "new", insert(R"("over": "tp")")), "norms",
              "leaves out 2 parameters such as norm2" + nothing);
  check_blame(blamed(sum_of_norms, Candidate::Kind::insert, "new", insert(R"("over": "tp")")), "norms",
              "leaves out router" + nothing);
}

TEST_CASE("a step over other axes leaves nothing out, and a new one is blamed under its own name") {
  const std::string missing = "is missing after micro_batches: nothing sums the gradients";
  check_blame(
      blamed(sum_of_norms, Candidate::Kind::insert, "new", insert(R"("over": ["tp", "dp"], "params": ["router"])")),
      "new", missing + " of router over tp, dp (4 ranks); ");
  check_blame(
      blamed(sum_of_norms, Candidate::Kind::insert, "new", insert(R"("over": { "tp": [0, 1] }, "params": ["router"])")),
      "new", missing);
  // It is for parameters that are right: it cannot be that they are left out.
  check_blame(blamed(sum_of_norms, Candidate::Kind::insert, "new", insert(R"("over": "tp", "params": ["whole"])")),
              "new", missing);
  // Neither do axes of one rank make it another group, nor their order.
  const std::string all_axes =
      R"({ "name": "norms", "op": "all_reduce", "over": ["pp", "tp"], "params": ["tag:norm"] }, )";
  check_blame(blamed(all_axes, Candidate::Kind::insert, "new", insert(R"("over": ["tp", "cp"], "params": ["router"])")),
              "norms", "leaves out router: ");
  // What is no reduction leaves nothing out.
  check_blame(
      blamed(sum_of_norms, Candidate::Kind::insert, "new",
             R"({ "insert": { "name": "new", "op": "scale", "by": 2, "params": ["router"] }, "before": "mean" })"),
      "new", "is missing before mean: nothing multiplies the gradients of router by 2; ");
  const std::string scaled = R"({ "name": "norms", "op": "scale", "by": "1/2", "params": ["tag:norm"] }, )";
  check_blame(blamed(scaled, Candidate::Kind::insert, "new", insert(R"("over": "tp", "params": ["router"])")), "new",
              missing);
}

TEST_CASE("a step that acts on them is blamed for when, where and on which buffer it does") {
  const auto of = [](const std::string& keys, const std::string& more = "") {
    return blamed(more + R"({ "name": "norms", "op": "all_reduce", "over": "tp", "params": ["tag:norm", "router"])" +
                      keys + " }, ",
                  Candidate::Kind::insert, "new", insert(R"("over": "tp", "params": ["router"])"));
  };
  check_blame(of(R"(, "when": "rank.dp == 0")"), "norms", "runs only where rank.dp == 0: nothing sums");
  check_blame(of(R"(, "only": { "dp": [0] })"), "norms", "runs only where dp 0: nothing sums");
  check_blame(of(R"(, "buffer": "other")", R"({ "name": "clear", "op": "zero", "buffer": "other" }, )"), "norms",
              "acts on the buffer other, not on grad: nothing sums");
}

TEST_CASE("ranks keep shares of their own where all of what is wrong is partial over the one axis of a sum") {
  const auto keeps = [](const std::string& keys) {
    return blamed("", Candidate::Kind::insert, "new", insert(keys)).why.find("keeps its own share") !=
           std::string::npos;
  };
  CHECK(keeps(R"("over": "tp", "params": ["router"])"));
  CHECK(keeps(R"("over": "tp", "params": ["router", "whole"])"));  // of which one is right
  CHECK_FALSE(keeps(R"("over": "dp", "params": ["router"])"));
  CHECK_FALSE(keeps(R"("over": ["tp", "dp"], "params": ["router"])"));
  CHECK_FALSE(keeps(R"("over": { "tp": [0, 1] }, "params": ["router"])"));
  CHECK_FALSE(keeps(R"("over": "tp", "params": ["router"], "reduce": "avg")"));
}

TEST_CASE("what is wrong with a step is said of what its edit does") {
  const auto of = [](const std::string& steps, const std::string& step, const std::string& edit) {
    return blamed(steps, Candidate::Kind::drop, step, edit);
  };
  const std::string twice = R"({ "name": "twice", "op": "scale", "by": "2", "params": ["whole"] }, )";
  check_blame(of(twice, "twice", R"({ "drop": "twice" })"), "twice",
              "is a step too many: it multiplies the gradients of whole by 2; ");
  check_blame(of(twice, "twice", R"({ "duplicate": "twice" })"), "twice",
              "should be there twice: it multiplies the gradients of whole by 2; ");
  check_blame(of(twice, "twice", R"({ "move": "twice", "after": "mean" })"), "twice",
              "comes too early: it belongs after mean; ");
  check_blame(of(twice, "twice", R"({ "move": "twice", "before": "micro_batches" })"), "twice",
              "comes too late: it belongs before micro_batches; ");
  check_blame(of(twice, "twice", R"({ "move": "twice", "before": "mean" })"), "twice",
              "belongs before mean, which has to move as well; ");
  // Beside it in the list of all steps, and in another list of the file.
  check_blame(of(twice, "twice", R"({ "move": "twice", "after": "backward" })"), "twice",
              "runs once and should run in every micro-batch, after backward; ");
  check_blame(of(twice, "backward", R"({ "drop": "backward[0]" })"), "backward",
              "runs in micro-batch [0] as well and should not; ");
  check_blame(of(twice, "twice", R"({ "set": "twice", "by": "1", "params": null })"), "twice",
              "multiplies by 2 where 1 is right, acts on whole and should act on all parameters; ");
  check_blame(of(twice, "mean", R"({ "insert": { "name": "half", "op": "scale", "by": "1/2" }, "after": "mean" })"),
              "mean", "needs a scale after it: nothing multiplies the gradients by 1/2; ");
  check_blame(of(twice, "gone", R"({ "drop": "twice" })"), "gone", "is at fault; ");
}

TEST_CASE("a step in the micro-batches that belongs behind them is not said to come too late") {
  const auto why = [](const std::string& step) {
    const CheckResult result = check_text(
        R"J({ "lockstep": 1, "layout": { "dp": 2 }, "model": { "parameters": [ { "name": "a", "shape": [4] } ] },
              "batch": { "micro_batches": 3 }, "schedule": { "steps": [
                { "name": "micro_batches", "op": "each", "steps": [
                  { "name": "backward", "op": "backward", "by": "1 / sum(tokens, dp, micro_batch)" }, )J" +
        step + " ] } ] } }");
    REQUIRE(result.blame.size() == 1);
    return result.blame.front().why;
  };
  const std::string sum = R"({ "name": "sum", "op": "all_reduce", "over": "dp")";
  CHECK(why(sum + " }").starts_with("runs in every micro-batch and should run once, after micro_batches; "));
  CHECK(why(sum + R"(, "when": "micro_batch != 1" })").find("too late") == std::string::npos);
}
