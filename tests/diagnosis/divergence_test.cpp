// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/divergence.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Divergence point_of(const std::string& text, int rank) {
  const CheckResult result = check_text(text);
  const std::optional<Divergence> point = first_divergence(result, rank, 0);
  REQUIRE(point.has_value());
  return *point;
}

}  // namespace

TEST_CASE("the first divergence is the step that mixes a stale share with a reduced one") {
  const CheckResult result = check_text(megatron_844());
  const std::optional<Divergence> point = first_divergence(result, 1, 0);
  REQUIRE(point.has_value());
  CHECK(point->step == "embedding_all_reduce");
  CHECK(point->before == "(g0+g1)/2");
  CHECK(point->after == "g3 + (g0+g1)/2");
  CHECK(point->broken);
  CHECK(point->why == "adds up shares with coefficients in a wrong ratio");
  REQUIRE(result.blame.size() == 1);
  CHECK(result.blame.front().step == "embedding_all_reduce");
}

TEST_CASE("a right buffer has no first divergence") {
  CHECK_FALSE(first_divergence(check_text(megatron_844()), 0, 0).has_value());
}

TEST_CASE("what goes wrong and is put right again is not the first divergence") {
  // After the first sum the shares of the second backward weigh less; the mean over equal ranks changes nothing for
  // good.
  const std::string text = scenario_text(
      R"({ "dp": 2 })", R"([ { "name": "weight", "shape": [8] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
                                         { "name": "spoil", "op": "scale", "by": "1 + rank.dp" },
                                         { "name": "restore", "op": "scale", "by": "1 / (1 + rank.dp) " },
                                         { "name": "spoil_again", "op": "scale", "by": "1 + rank.dp" },
                                         { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" } ])");
  const Divergence point = point_of(text, 0);
  CHECK(point.step == "mean");
  CHECK(point.broken);
}

TEST_CASE("where a share is missing no step spoils it") {
  const Divergence point = point_of(two_ranks(R"({ "name": "half", "op": "scale", "by": "1/2" })"), 0);
  CHECK(point.step.empty());
  CHECK_FALSE(point.broken);
  CHECK(point.why.find("missing") != std::string::npos);
}

TEST_CASE(
    "of a multiple of the right gradient the last step that changed it is named, and the one too many is blamed") {
  const CheckResult result = check_text(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" },
    { "name": "same", "op": "all_reduce", "over": "dp", "reduce": "avg" })"));
  const std::optional<Divergence> point = first_divergence(result, 1, 0);
  REQUIRE(point.has_value());
  CHECK(point->step == "sum");
  CHECK_FALSE(point->broken);
  CHECK(point->why.find("2 × the right gradient") != std::string::npos);
  REQUIRE(result.blame.size() == 1);
  CHECK(result.blame.front().step == "sum");
}

TEST_CASE("a step that hands on what went wrong in another buffer is not to blame") {
  const Divergence point = point_of(two_ranks(R"({ "name": "fork", "op": "copy", "from": "grad", "to": "work" },
      { "name": "spoil", "op": "scale", "by": "1 + rank.dp", "buffer": "work" },
      { "name": "mix", "op": "all_reduce", "over": "dp", "reduce": "avg", "buffer": "work" },
      { "name": "back", "op": "copy", "from": "work", "to": "grad" })"),
                                    0);
  CHECK(point.step == "mix");
}

TEST_CASE("a step that throws away what an earlier micro-batch added is the first divergence") {
  const std::string text =
      R"({ "lockstep": 1, "layout": { "dp": 2 }, "model": { "parameters": [ { "name": "weight", "shape": [8] } ] },
    "batch": { "micro_batches": 2, "tokens": "even" }, "schedule": { "steps": [
      { "name": "each", "op": "each", "steps": [ { "name": "zero", "op": "zero" }, { "name": "backward", "op": "backward" } ] },
      { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" } ] } })";
  const Divergence point = point_of(text, 0);
  CHECK(point.step == "zero");
  CHECK(point.why == "loses contributions that were there");
  CHECK(point.after == "0");
  CHECK(point.broken);
}

TEST_CASE("a step that changes what was right is the first divergence") {
  const Divergence twice = point_of(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
      { "name": "twice", "op": "scale", "by": "2" })"),
                                    0);
  CHECK(twice.step == "twice");
  CHECK(twice.before == "(g0+g1)/2");
  CHECK(twice.after == "g0 + g1");
}

TEST_CASE("a leftover is named by what it is") {
  const Divergence point = point_of(two_ranks(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
      { "name": "leak", "op": "leftover", "what": "parameter" })"),
                                    0);
  CHECK(point.step == "leak");
  CHECK(point.why == "brings in what is no gradient (parameter)");
}

TEST_CASE("what an earlier optimizer step left is nobody's doing: a step is missing") {
  const std::string text =
      R"({ "lockstep": 1, "layout": { "dp": 2 }, "model": { "parameters": [ { "name": "weight", "shape": [8] } ] },
    "batch": { "micro_batches": 1, "steps": 2, "tokens": "even" }, "schedule": { "steps": [
      { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
      { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" } ] } })";
  const CheckResult result = check_text(text);
  REQUIRE(result.verdict == Verdict::mismatch);
  CHECK(result.step == 1);
  const std::optional<Divergence> point = first_divergence(result, 0, 0);
  REQUIRE(point.has_value());
  CHECK(point->step.empty());
  CHECK(point->why.find("earlier optimizer step") != std::string::npos);
}

TEST_CASE("what is wrong alike on several ranks is traced once, and of parameters of one kind eight") {
  const CheckResult twice = check_text(two_ranks(mean_step + R"(, { "name": "twice", "op": "scale", "by": 2 })"));
  CHECK(twice.divergences.size() == 1);
  std::string parameters, steps;
  for (int i = 0; i < 12; ++i) {
    const std::string name = "l." + std::to_string(i) + ".w";
    parameters += std::string(i > 0 ? ", " : "") + R"({ "name": ")" + name + R"(", "shape": [4] })";
    steps += R"(, { "name": "s)" + std::to_string(i) + R"(", "op": "scale", "by": )" + std::to_string(i + 2) +
             R"(, "params": [")" + name + R"("] })";
  }
  CheckOptions options;
  options.host = options.blame = false;
  const CheckResult many = check_text(
      scenario_text(R"({ "dp": 2 })", "[" + parameters + R"(, { "name": "other", "shape": [4] } ])",
                    R"([ { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
                        mean_step + steps + R"(, { "name": "last", "op": "scale", "by": 99, "params": ["other"] } ])"),
      options);
  REQUIRE(many.divergences.size() == 9);
  CHECK(many.divergences.front().point.step == "s0");
  CHECK(many.divergences.back().point.step == "last");
}

TEST_CASE("the step that clips otherwise is told, and not one that has not clipped yet") {
  const auto steps = [](const std::string& tail) {
    return scenario_text(
        R"({ "dp": 2 })", R"([ { "name": "w", "shape": [4] } ])",
        R"([ { "name": "each", "op": "each", "steps": [ { "name": "b", "op": "backward" } ] }, )" + tail + " ]");
  };
  const std::string mean = R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })";
  const std::string norm = R"({ "name": "norm", "op": "norm" })", clip = R"({ "name": "clip", "op": "clip" })";
  const Divergence early = point_of(steps(norm + "," + clip + "," + mean), 1);
  CHECK(early.step == "clip");
  CHECK(early.why == "clips by another norm than that of all gradients");
  CHECK(early.before == "g1");
  CHECK(early.after == "clip1(g1)");
  const Divergence twice =
      point_of(steps(mean + "," + norm + "," + clip + R"(, { "name": "again", "op": "clip" })"), 0);
  CHECK(twice.step == "again");
  CHECK(twice.why == "clips once more");
  const Divergence never =
      point_of(steps(mean + "," + norm + R"(, { "name": "clip", "op": "clip", "only": { "dp": 0 } })"), 1);
  CHECK(never.step.empty());
  CHECK(never.why == "not clipped, and no step adds it");
  const Divergence mixed =
      point_of(steps(norm + R"(, { "name": "clip", "op": "clip", "only": { "dp": 0 } }, )" + mean), 1);
  CHECK(mixed.step == "mean");
  CHECK(mixed.why == "brings in what is clipped by different factors");
}

TEST_CASE("a clip is not what goes wrong where it clips what is wrong already") {
  const auto steps = [](const std::string& tail) {
    return scenario_text(
        R"({ "dp": 2 })", R"([ { "name": "w", "shape": [4] }, { "name": "v", "shape": [6] } ])",
        R"([ { "name": "each", "op": "each", "steps": [ { "name": "b", "op": "backward" } ] }, )" + tail + " ]");
  };
  const std::string norm = R"(, { "name": "norm", "op": "norm" })", clip = R"(, { "name": "clip", "op": "clip" })";
  // Only a factor before it.
  const std::string sum = R"({ "name": "sum", "op": "all_reduce", "over": "dp" })";
  const Divergence factor = point_of(steps(sum + norm + clip), 1);
  CHECK(factor.step == "sum");
  CHECK_FALSE(factor.broken);
  CHECK(factor.why == "leaves 2 × the right gradient, and no later step corrects it");
  CHECK(factor.after == "g0 + g1");
  const Divergence twice = point_of(steps(sum + norm + clip + R"(, { "name": "again", "op": "clip" })"), 1);
  CHECK(twice.step == "sum");
  // Only a reduction before it.
  const Divergence missing = point_of(steps(norm.substr(2) + clip), 1);
  CHECK(missing.step.empty());
  CHECK(missing.why ==
        "the share of dp 0 is missing, the other shares count 2 ×, clipped by another norm, and no step adds it");
  // Or that of another parameter, which the norm counts as well.
  const CheckResult other = check_text(
      steps(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg", "params": ["v"] })" + norm + clip));
  REQUIRE(other.divergences.size() >= 2);
  CHECK(diagnosis::blame_of(other.divergences).empty());
  REQUIRE(other.blame.size() == 1);
  CHECK(other.blame.front().step == "mean");
  // What is left unclipped is added to what is not: twice as much, clipped or not.
  const Divergence added =
      point_of(steps(R"({ "name": "t", "op": "copy", "from": "grad", "to": "t" }, )" + mean_step + norm + clip +
                     R"(, { "name": "add", "op": "accumulate", "from": "t", "to": "grad" })"),
               0);
  CHECK(added.step == "add");
  CHECK(added.why == "adds up shares with coefficients in a wrong ratio");
}
