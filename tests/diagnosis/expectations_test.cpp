// SPDX-License-Identifier: Apache-2.0
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::vector<std::string> unmet(const std::string& expect) {
  return unmet_expectations(check_text(megatron_844(expect)));
}

/// The one sentence that is unmet.
std::string only(const std::string& expect) {
  const std::vector<std::string> sentences = unmet(expect);
  REQUIRE(sentences.size() == 1);
  return sentences.front();
}

}  // namespace

TEST_CASE("a file without expect has nothing unmet") { CHECK(unmet_expectations(check_text(megatron_844())).empty()); }

TEST_CASE("everything that really comes out may be expected") {
  CHECK(unmet(
            R"json({ "verdict": "mismatch", "parameters": ["tied:embedding"], "ranks": [2, 1],
                   "blame": ["embedding_all_reduce"], "step": 0,
                   "replicas_agree": false,
                   "formula": { "word": { "1": "g3 + (g0+g1)/2" },
                                    "output": { "2": { "[40,115)": "g0 + (g2+g3)/2" } } } })json")
            .empty());
}

TEST_CASE("the verdict is compared") {
  CHECK(only(R"json({ "verdict": "match" })json") == "verdict: expected match, found mismatch");
}

TEST_CASE("exactly the expected parameters must be wrong") {
  CHECK(only(R"json({ "verdict": "mismatch", "parameters": ["word"] })json") ==
        "parameters: expected exactly [word] to be wrong; found wrong as well: output");
  CHECK(only(R"json({ "verdict": "mismatch", "parameters": ["tied:embedding", "norm"] })json") ==
        "parameters: expected exactly [tied:embedding, norm] to be wrong; found right: norm");
}

TEST_CASE("exactly the expected ranks must be wrong") {
  CHECK(only(R"json({ "verdict": "mismatch", "ranks": [1] })json") ==
        "ranks: expected exactly [1] to be wrong, found [1, 2]");
}

TEST_CASE("formulas are compared as algebra") {
  CHECK(unmet(R"json({ "verdict": "mismatch", "formula": { "word": { "1": "(2*g3 + g1 + g0) / 2" } } })json").empty());
  CHECK(only(R"json({ "verdict": "mismatch", "formula": { "word": { "1": "(g0+g1+g3)/2" } } })json") ==
        "formula of word on rank 1: expected (g0+g1+g3)/2, found g3 + (g0+g1)/2 in elements [40, 115)");
}

TEST_CASE("a formula without elements speaks of every wrong element, and there must be one") {
  CHECK(only(R"json({ "verdict": "mismatch", "formula": { "layers.0.weight": { "0": "g0" } } })json") ==
        "formula of layers.0.weight on rank 0: expected g0, found no wrong element there");
}

TEST_CASE("a formula with elements holds for all of them, right ones too") {
  CHECK(
      unmet(R"json({ "verdict": "mismatch", "formula": { "word": { "1": { "[115,150)": "(g0+g1+g2+g3)/2" } } } })json")
          .empty());
  CHECK(only(R"json({ "verdict": "mismatch", "formula": { "word": { "1": { "[100,150)": "(g0+g1+g2+g3)/2" } } } })json")
            .find("[40, 115)") != std::string::npos);
  CHECK(only(R"json({ "verdict": "mismatch", "formula": { "word": { "1": { "[0,150)": "g0" } } } })json") ==
        "formula of word on rank 1, elements [0, 150): expected g0, found the rank does not own all of these elements");
}

TEST_CASE("the ratio is one number for all wrong elements") {
  const std::string twice =
      two_ranks(R"json({ "name": "sum", "op": "all_reduce", "over": "dp" })json",
                R"json(, "expect": { "verdict": "mismatch", "ratio": 2, "replicas_agree": true })json");
  CHECK(unmet_expectations(check_text(twice)).empty());
  CHECK(only(R"json({ "verdict": "mismatch", "ratio": "1/2" })json") ==
        "ratio: expected 1/2 × the right gradient for every wrong element, found no multiple of it on rank 1");
}

TEST_CASE("the blamed steps are compared as a set") {
  CHECK(only(R"json({ "verdict": "mismatch", "blame": ["dp_reduce_scatter"] })json") ==
        "blame: expected dp_reduce_scatter, found embedding_all_reduce");
}

TEST_CASE("norm counts are compared by name") {
  const std::string steps =
      R"json({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
             { "name": "grad_norm", "op": "norm", "over": "dp" })json";
  CHECK(unmet_expectations(
            check_text(two_ranks(steps, R"json(, "expect": { "verdict": "mismatch", "norm": { "weight": "2" } })json")))
            .empty());
  const auto sentences = unmet_expectations(
      check_text(two_ranks(steps, R"json(, "expect": { "verdict": "mismatch", "norm": { "weight": "3" } })json")));
  REQUIRE(sentences.size() == 1);
  CHECK(sentences.front() == "norm: expected weight to be counted 3 times, found 2");
}

TEST_CASE("the factor on the squared norm is one number, and none where counts differ") {
  const auto sentences = [](const std::string& norms, const std::string& factor) {
    return unmet_expectations(check_text(
        two_ranks(R"json({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" }, )json" + norms,
                  R"json(, "expect": { "verdict": "mismatch", "norm_squared_factor": )json" + factor + " }")));
  };
  const std::string twice = R"json({ "name": "grad_norm", "op": "norm", "over": "dp" })json";
  CHECK(sentences(twice, "2").empty());
  CHECK(sentences(twice, "\"4/2\"").empty());
  CHECK(sentences(twice, "\"9/4\"") == std::vector<std::string>{"norm_squared_factor: expected 9/4, found 2"});
  const std::string mean = R"json({ "name": "grad_norm", "op": "norm", "over": "dp", "combine": "mean_of_norms" })json";
  CHECK(sentences(mean, "1") ==
        std::vector<std::string>{"norm_squared_factor: expected 1, found counts that make no one number"});
  const std::string uncounted = R"json({ "name": "x", "op": "scale", "by": 3 })json";
  CHECK(sentences(uncounted, "1") == std::vector<std::string>{"norm_squared_factor: expected 1, found no wrong count"});
}

TEST_CASE("the steps in which ranks are stuck are compared") {
  const std::string stuck = R"json({ "name": "lonely", "op": "all_reduce", "over": "dp", "when": "rank.dp == 0" })json";
  CHECK(unmet_expectations(
            check_text(two_ranks(stuck, R"json(, "expect": { "verdict": "deadlock", "stuck": ["lonely"] })json")))
            .empty());
  const auto sentences = unmet_expectations(
      check_text(two_ranks(stuck, R"json(, "expect": { "verdict": "deadlock", "stuck": ["backward"] })json")));
  REQUIRE(sentences.size() == 1);
  CHECK(sentences.front() == "stuck: expected backward, found lonely");
}

TEST_CASE("a foreign contribution that is expected must be of that element and that piece") {
  const auto sentences = [](const std::string& formula) {
    return unmet_expectations(check_text(
        scenario_text(R"({ "tp": 2 })", R"([ { "name": "w", "shape": [8], "shard": { "tp": 0 } } ])",
                      R"([ { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
                      { "name": "spread", "op": "broadcast", "over": "tp", "root": 0 } ])",
                      R"(, "expect": { "verdict": "mismatch", "formula": { "w": { "1": ")" + formula + R"(" } } })")));
  };
  CHECK(sentences("g0[w@0]").empty());
  CHECK(sentences("g0[w@0+1]").size() == 1);
  CHECK(sentences("g0[w@0-1]").size() == 1);
  CHECK(sentences("g0").size() == 1);
}

TEST_CASE("a formula is expected of a parameter that the rank holds") {
  CHECK(only(R"json({ "verdict": "mismatch", "formula": { "norm": { "1": "g0" } } })json") ==
        "formula of norm on rank 1: expected g0, found the rank holds no such parameter");
}
