// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/kind_of_mistake.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Four ranks, one parameter and a right schedule, with these edits.
std::string_view kind_after(const std::string& edits, const std::string& more_steps = "") {
  const std::string text = R"({ "lockstep": 1, "layout": { "dp": 2, "tp": 2 },
    "model": { "parameters": [ { "name": "w", "shape": [8] }, { "name": "v", "shape": [3] } ] },
    "batch": { "micro_batches": 2, "tokens": "even" },
    "schedule": { "steps": [ { "name": "zero", "op": "zero" },
      { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/2" } ] },
      { "name": "first", "op": "scale", "by": 2 }, { "name": "last", "op": "scale", "by": "1/2" },
      { "name": "scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg", "geometry": { "kind": "flat" } },
      { "name": "gather", "op": "all_gather", "over": "dp" })" +
                           more_steps + R"( ], "edits": [)" + edits + "] } }";
  const CheckResult result = check_text(text);
  INFO(edits);
  REQUIRE(result.verdict != Verdict::error);
  REQUIRE(result.verdict != Verdict::match);
  return name_of(diagnosis::kind_of_mistake(result));
}

std::string_view kind_of(const std::string& text) {
  const CheckResult result = check_text(text);
  REQUIRE(result.verdict != Verdict::match);
  return name_of(diagnosis::kind_of_mistake(result));
}

}  // namespace

TEST_CASE("an edit says what kind of mistake it is") {
  CHECK(kind_after(R"({ "drop": "scatter" }, { "drop": "gather" })") == "missing reduction");
  CHECK(kind_after(R"({ "move": "scatter", "before": "micro_batches" }, { "drop": "gather" })") == "wrong place");
  CHECK(kind_after(R"({ "set": "scatter", "over": "tp" }, { "set": "gather", "over": "tp" })") == "missing reduction");
  CHECK(kind_after(R"({ "insert": { "name": "again", "op": "all_reduce", "over": "tp" }, "after": "last" })") ==
        "extra reduction");
  CHECK(kind_after(R"({ "insert": { "name": "again", "op": "scale", "by": 3 }, "after": "last" })") == "wrong factor");
  CHECK(kind_after(R"({ "parameter": "v", "partial": ["tp"] })") == "wrong placement");
  CHECK(kind_after(R"({ "insert": { "name": "w", "op": "leftover", "what": "parameter" }, "after": "zero" })") ==
        "leftover");
}

TEST_CASE("a reduction over other axes is over the wrong group") {
  const std::string text = R"({ "lockstep": 1, "layout": { "dp": 2, "tp": 2 },
    "model": { "parameters": [ { "name": "v", "shape": [3], "partial": ["tp"] } ] },
    "batch": { "micro_batches": 1, "tokens": "even" },
    "schedule": { "steps": [ { "name": "micro_batches", "op": "each", "steps": [ { "name": "b", "op": "backward" } ] },
      { "name": "tp", "op": "all_reduce", "over": "tp" },
      { "name": "dp", "op": "all_reduce", "over": "dp", "reduce": "avg" } ],
    "edits": [ { "set": "tp", "over": "dp" } ] } })";
  CHECK(kind_of(text) == "wrong group");
}

TEST_CASE("an edit without which the file would not match either says nothing") {
  // The move is harmless; the factor is the mistake.
  CHECK(kind_after(R"({ "move": "last", "before": "first" }, { "set": "last", "by": 1 })") == "wrong factor");
}

TEST_CASE("without edits the content says what kind of mistake it is") {
  CHECK(kind_of(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })")) == "wrong factor");
  CHECK(kind_of(two_ranks(R"({ "name": "half", "op": "scale", "by": "1/2" })")) == "missing reduction");
  CHECK(kind_of(two_ranks(mean_step + R"(, { "name": "root", "op": "scale", "by": 2, "only": { "dp": [0] } })")) ==
        "wrong factor");
  CHECK(kind_of(two_ranks(R"({ "name": "one", "op": "scale", "by": 3, "only": { "dp": [0] } }, )" + mean_step)) ==
        "wrong weights");
  CHECK(kind_of(two_ranks(mean_step + R"(, { "name": "p", "op": "leftover", "what": "parameter" })")) == "leftover");
  CHECK(kind_of(two_ranks(mean_step + R"(, { "name": "n", "op": "norm", "over": "dp" })")) == "norm count");
  // A norm is another one where what it counts is wrong.
  const std::string clip = R"(, { "name": "n", "op": "norm" }, { "name": "c", "op": "clip" })";
  CHECK(kind_of(two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" })" + clip)) == "wrong factor");
  CHECK(kind_of(two_ranks(clip.substr(2))) == "missing reduction");
  CHECK(kind_of(two_ranks(clip.substr(2) + ", " + mean_step)) == "clipping");
  CHECK(kind_of(two_ranks(mean_step + clip + R"(, { "name": "again", "op": "clip" })")) == "clipping");
  // Where no edit tells of the cut, what is left is that a share did not arrive.
  CHECK(kind_of(megatron_844()) == "missing reduction");
}

TEST_CASE("a run that stops is told by its verdict") {
  CHECK(kind_of(two_ranks(R"({ "name": "lonely", "op": "all_reduce", "over": "dp", "when": "rank.dp == 0" })")) ==
        "deadlock");
}

TEST_CASE("of 32 edits the one at fault tells the kind, of more the content does") {
  const auto with_edits = [](int harmless) {
    std::string edits;
    for (int i = 0; i < harmless; ++i) edits += R"({ "set": "first", "by": 2 }, )";
    return kind_after(edits + R"({ "move": "scatter", "before": "micro_batches" }, { "drop": "gather" })");
  };
  CHECK(with_edits(30) == "wrong place");
  CHECK(with_edits(31) == "missing reduction");
}

TEST_CASE("what a file expects of a step that an edit brings does not hinder that the edit tells the kind") {
  const std::string text = two_ranks(
      mean_step +
          R"( ], "edits": [ { "insert": { "name": "again", "op": "all_reduce", "over": "dp" }, "after": "mean" } )",
      R"(, "expect": { "verdict": "mismatch", "blame": ["again"] })");
  CHECK(kind_of(text) == "extra reduction");
}

TEST_CASE("what is wrong by clipping alone is clipping") {
  const auto kind_with = [](const std::string& steps) {
    return kind_of(scenario_text(
        R"({ "dp": 2 })", R"([ { "name": "w", "shape": [4] } ])",
        R"([ { "name": "each", "op": "each", "steps": [ { "name": "b", "op": "backward" } ] }, )" + steps + " ]"));
  };
  const std::string mean = R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" })";
  const std::string norm = R"({ "name": "norm", "op": "norm" })", clip = R"({ "name": "clip", "op": "clip" })";
  CHECK(kind_with(norm + "," + clip + "," + mean) == "clipping");
  CHECK(kind_with(mean + "," + norm + "," + clip + R"(, { "name": "again", "op": "clip" })") == "clipping");
  CHECK(kind_with(norm + "," + clip) == "missing reduction");
  CHECK(kind_with(mean + "," + norm + "," + clip + R"(, { "name": "half", "op": "scale", "by": 2 })") ==
        "wrong factor");
}
