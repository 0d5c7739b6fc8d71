// SPDX-License-Identifier: Apache-2.0
#include "src/report/json_writer.h"

#include "tests/catch.h"

using namespace lockstep;

namespace {

template <typename F>
std::string written(F&& fill) {
  std::string text;
  report::JsonWriter json([&](std::string_view part) { text += part; });
  fill(json);
  json.finish();
  return text;
}

}  // namespace

TEST_CASE("objects are indented by two spaces, one-line containers stand on their line") {
  const std::string text = written([](report::JsonWriter& json) {
    json.begin_object();
    json.key("at");
    json.begin_object(true);
    json.key("pp");
    json.number(0);
    json.key("dp");
    json.number(1);
    json.end_object();
    json.key("owned");
    json.intervals({{0, 4}, {6, 8}});
    json.key("none");
    json.begin_array();
    json.end_array();
    json.end_object();
  });
  CHECK(text == "{\n  \"at\": { \"pp\": 0, \"dp\": 1 },\n  \"owned\": [[0, 4], [6, 8]],\n  \"none\": []\n}\n");
}

TEST_CASE("strings are escaped so that they read back") {
  const std::string raw = "quote \" backslash \\ line\nbreak tab\t bell \a × 2";
  const std::string text = written([&](report::JsonWriter& json) { json.string(raw); });
  Diagnostics diagnostics;
  const Json back = parse_json(std::make_shared<const Source>(Source{"t", text}), diagnostics);
  REQUIRE(diagnostics.empty());
  CHECK(back.text() == raw);
}

TEST_CASE("an empty text can be null") {
  CHECK(written([](report::JsonWriter& json) { json.string_or_null(""); }) == "null\n");
  CHECK(written([](report::JsonWriter& json) { json.string_or_null("x"); }) == "\"x\"\n");
}

TEST_CASE("a value that was read is written back the same") {
  Diagnostics diagnostics;
  const Json value = parse_json(
      std::make_shared<const Source>(Source{"t", R"({"a": [1, 0.1, "x", null, true], "b": {}})"}), diagnostics);
  CHECK(written([&](report::JsonWriter& json) { json.value(value, true); }) ==
        "{ \"a\": [1, 0.1, \"x\", null, true], \"b\": {} }\n");
}
