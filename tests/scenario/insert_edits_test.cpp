// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/insert_edits.h"

#include "tests/catch.h"

using namespace lockstep;

namespace {

std::string with(const std::string& schedule, const std::vector<std::string>& edits) {
  const std::string head = R"({ "lockstep": 1, "model": { "parameters": [ { "name": "w", "shape": [4] } ] },
  // a comment
  "schedule": )";
  const auto source = std::make_shared<const Source>(
      Source{"test.json", head + schedule + ",\n  \"expect\": { \"verdict\": \"mismatch\", \"ranks\": [0] }, }\n"});
  const std::string text = scenario::text_with_edits(read_scenario(source), edits, "");
  REQUIRE(text.starts_with(head));
  REQUIRE(text.ends_with(",\n  \"expect\": { \"verdict\": \"match\" }, }\n"));
  // It can be read again, with the edits.
  const Scenario again = read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
  CHECK(again.document.find("schedule")->find("edits")->items().size() >= edits.size());
  const std::size_t tail = text.find(",\n  \"expect\"");
  return text.substr(head.size(), tail - head.size());
}

constexpr const char* drop = R"({ "drop": "zero" })";
const std::string steps = R"("steps": [ { "name": "zero", "op": "zero" }, { "name": "again", "op": "zero" } ])";

}  // namespace

TEST_CASE("edits are added to a schedule without any, on its line or on lines of their own") {
  CHECK(with("{ " + steps + " }", {drop}) == "{ " + steps + R"(, "edits": [ { "drop": "zero" } ] })");
  CHECK(with("{\n    " + steps + ", // why\n  }", {drop}) ==
        "{\n    " + steps + ",\n    \"edits\": [\n      { \"drop\": \"zero\" }\n    ], // why\n  }");
}

TEST_CASE("edits are put behind those that are there") {
  const std::string again = R"({ "drop": "again" })";
  CHECK(with("{ " + steps + R"(, "edits": [ { "drop": "again" } ] })", {drop}) ==
        "{ " + steps + R"(, "edits": [ { "drop": "again" }, { "drop": "zero" } ] })");
  CHECK(with("{ " + steps + ", \"edits\": [\n      " + again + ", // last\n  ] }", {drop}) ==
        "{ " + steps + ", \"edits\": [\n      " + again + ",\n      { \"drop\": \"zero\" }, // last\n  ] }");
  CHECK(with("{ " + steps + ", \"edits\": [\n" + again + "\n] }", {drop}) ==
        "{ " + steps + ", \"edits\": [\n" + again + ",\n{ \"drop\": \"zero\" }\n] }");
  CHECK(with("{ " + steps + R"(, "edits": [] })", {drop}) == "{ " + steps + R"(, "edits": [ { "drop": "zero" } ] })");
}
