// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/edit_mistakes.h"

#include "lockstep/scenario.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

const std::string before_edits = R"({ "lockstep": 1, "layout": { "dp": 2, "tp": 2 },
  "model": { "parameters": [ { "name": "w", "shape": [8] } ] }, "batch": { "micro_batches": 2 },
  "schedule": { "steps": [
    { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
    { "name": "scatter", "op": "reduce_scatter", "over": "dp", "geometry": { "kind": "flat" } },
    { "name": "gather", "op": "all_gather", "over": "dp" } ],
)";

/// Line, column and sentence of the one mistake.
std::string mistake_of(const std::string& edits) {
  const std::string text = before_edits + "  \"edits\": [" + edits + "] } }";
  try {
    read_scenario(std::make_shared<const Source>(Source{"x.json", text}));
  } catch (const InputError& error) {
    REQUIRE(error.diagnostics().size() == 1);
    const Diagnostic& one = error.diagnostics().front();
    const LineColumn at = line_column(one.place);
    return std::to_string(at.line) + ":" + std::to_string(at.column) + " " + one.message;
  }
  return "";
}

}  // namespace

TEST_CASE("what an edit makes of a step is reported at the edit's key, with the step") {
  CHECK(mistake_of(R"({ "set": "gather", "over": null })")
            .starts_with("7:32 with this edit of step \"gather\": missing key \"over\""));
  CHECK(mistake_of(R"({ "set": "scatter", "name": "gather" })") ==
        "7:33 with this edit of step \"scatter\": two steps are named \"gather\"; give one of them another name");
  CHECK(mistake_of(R"({ "move": "backward", "after": "gather" })")
            .starts_with("7:15 with this edit of step \"backward\": \"backward\" must stand inside an \"each\""));
  CHECK(mistake_of(R"({ "parameter": "w", "shape": [7], "shard": { "tp": 0 } })")
            .starts_with("7:15 with this edit of parameter \"w\": the parameter \"w\" has 7 elements"));
}

TEST_CASE("of several edits the one that makes the mistake has it") {
  CHECK(mistake_of(R"({ "set": "gather", "async": true }, { "set": "gather", "over": null },
 { "set": "scatter", "reduce": "avg" })")
            .starts_with("7:68 with this edit of step \"gather\": missing key \"over\""));
  // What is said of a value stays at the value.
  CHECK(mistake_of(R"({ "set": "gather", "over": "data" })").starts_with("7:40 expected an axis"));
}

TEST_CASE("a mistake that is there without the edits has the place of the step") {
  const std::string text = R"({ "lockstep": 1, "layout": { "dp": 2 },
  "model": { "parameters": [ { "name": "w", "shape": [8] } ] },
  "schedule": { "steps": [ { "name": "sum", "op": "all_reduce" } ], "edits": [ { "set": "sum", "reduce": "avg" } ] } })";
  try {
    read_scenario(std::make_shared<const Source>(Source{"x.json", text}));
    FAIL("the step has no group");
  } catch (const InputError& error) {
    CHECK(line_column(error.diagnostics().front().place).line == 3);
    CHECK(line_column(error.diagnostics().front().place).column == 28);
    CHECK(error.diagnostics().front().message.starts_with("missing key \"over\""));
  }
}
