// SPDX-License-Identifier: Apache-2.0
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::vector<std::string> unmet(const std::string& expect) { return unmet_expectations(check_text(megatron_844(expect))); }

/// The one sentence that is unmet.
std::string only(const std::string& expect) {
  const std::vector<std::string> sentences = unmet(expect);
  REQUIRE(sentences.size() == 1);
  return sentences.front();
}

}  // namespace

TEST_CASE("a file without expect has nothing unmet") { CHECK(unmet_expectations(check_text(megatron_844())).empty()); }

TEST_CASE("everything that really comes out may be expected") {
  CHECK(unmet(R"({ "verdict": "mismatch", "parameters": ["tied:embedding"], "ranks": [2, 1], "blame": ["embedding_all_reduce"], "step": 0,
                   "replicas_agree": false,
                   "formula": { "word": { "1": "g3 + (g0+g1)/2" }, "output": { "2": { "[40,115)": "g0 + (g2+g3)/2" } } } })")
            .empty());
}

TEST_CASE("the verdict is compared") {
  CHECK(only(R"({ "verdict": "match" })") == "verdict: expected match, found mismatch");
}

TEST_CASE("exactly the expected parameters must be wrong") {
  CHECK(only(R"({ "verdict": "mismatch", "parameters": ["word"] })") ==
        "parameters: expected exactly [word] to be wrong; found wrong as well: output");
  CHECK(only(R"({ "verdict": "mismatch", "parameters": ["tied:embedding", "norm"] })") ==
        "parameters: expected exactly [tied:embedding, norm] to be wrong; found right: norm");
}

TEST_CASE("exactly the expected ranks must be wrong") {
  CHECK(only(R"({ "verdict": "mismatch", "ranks": [1] })") == "ranks: expected exactly [1] to be wrong, found [1, 2]");
}

TEST_CASE("formulas are compared as algebra") {
  CHECK(unmet(R"({ "verdict": "mismatch", "formula": { "word": { "1": "(2*g3 + g1 + g0) / 2" } } })").empty());
  CHECK(only(R"({ "verdict": "mismatch", "formula": { "word": { "1": "(g0+g1+g3)/2" } } })") ==
        "formula of word on rank 1: expected (g0+g1+g3)/2, found g3 + (g0+g1)/2 in elements [40, 115)");
}

TEST_CASE("a formula without elements speaks of every wrong element, and there must be one") {
  CHECK(only(R"({ "verdict": "mismatch", "formula": { "layers.0.weight": { "0": "g0" } } })") ==
        "formula of layers.0.weight on rank 0: expected g0, found no wrong element there");
}

TEST_CASE("a formula with elements holds for all of them, right ones too") {
  CHECK(unmet(R"({ "verdict": "mismatch", "formula": { "word": { "1": { "[115,150)": "(g0+g1+g2+g3)/2" } } } })").empty());
  CHECK(only(R"({ "verdict": "mismatch", "formula": { "word": { "1": { "[100,150)": "(g0+g1+g2+g3)/2" } } } })").find("[40, 115)") !=
        std::string::npos);
  CHECK(only(R"({ "verdict": "mismatch", "formula": { "word": { "1": { "[0,150)": "g0" } } } })") ==
        "formula of word on rank 1, elements [0, 150): expected g0, found the rank does not own all of these elements");
}

TEST_CASE("the ratio is one number for all wrong elements") {
  const std::string twice = two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })",
                                      R"(, "expect": { "verdict": "mismatch", "ratio": 2, "replicas_agree": true })");
  CHECK(unmet_expectations(check_text(twice)).empty());
  CHECK(only(R"({ "verdict": "mismatch", "ratio": "1/2" })") ==
        "ratio: expected 1/2 × the right gradient for every wrong element, found no multiple of it on rank 1");
}

TEST_CASE("the blamed steps are compared as a set") {
  CHECK(only(R"({ "verdict": "mismatch", "blame": ["dp_reduce_scatter"] })") ==
        "blame: expected dp_reduce_scatter, found embedding_all_reduce");
}

TEST_CASE("norm counts are compared by name") {
  const std::string steps = R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" }, { "name": "grad_norm", "op": "norm", "over": "dp" })";
  CHECK(unmet_expectations(check_text(two_ranks(steps, R"(, "expect": { "verdict": "mismatch", "norm": { "weight": "2" } })"))).empty());
  const auto sentences = unmet_expectations(check_text(two_ranks(steps, R"(, "expect": { "verdict": "mismatch", "norm": { "weight": "3" } })")));
  REQUIRE(sentences.size() == 1);
  CHECK(sentences.front() == "norm: expected weight to be counted 3 times, found 2");
}

TEST_CASE("the steps in which ranks are stuck are compared") {
  const std::string stuck = R"({ "name": "lonely", "op": "all_reduce", "over": "dp", "when": "rank.dp == 0" })";
  CHECK(unmet_expectations(check_text(two_ranks(stuck, R"(, "expect": { "verdict": "deadlock", "stuck": ["lonely"] })"))).empty());
  const auto sentences = unmet_expectations(check_text(two_ranks(stuck, R"(, "expect": { "verdict": "deadlock", "stuck": ["backward"] })")));
  REQUIRE(sentences.size() == 1);
  CHECK(sentences.front() == "stuck: expected backward, found lonely");
}
