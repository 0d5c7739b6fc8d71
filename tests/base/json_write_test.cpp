// SPDX-License-Identifier: Apache-2.0
#include "lockstep/json.h"
#include "tests/base/parsed.h"
#include "tests/catch.h"

using lockstep::Diagnostics;
using lockstep::Json;
using lockstep::write_json;

TEST_CASE("Scalars stand alone") {
  CHECK(write_json(Json()) == "null\n");
  CHECK(write_json(Json::boolean(false)) == "false\n");
  CHECK(write_json(Json::number("5e8")) == "5e8\n");
  CHECK(write_json(Json::string("dp")) == "\"dp\"\n");
}

TEST_CASE("What holds only scalars stands on one line, all else on a line for each") {
  CHECK(write_json(parsed(R"({"a":[1,2],"b":{"dp":2,"pp":"x"},"c":[],"d":{},"e":[[1],{"f":[{}]}]})")) ==
        "{\n"
        "  \"a\": [1, 2],\n"
        "  \"b\": { \"dp\": 2, \"pp\": \"x\" },\n"
        "  \"c\": [],\n"
        "  \"d\": {},\n"
        "  \"e\": [\n"
        "    [1],\n"
        "    {\n"
        "      \"f\": [\n"
        "        {}\n"
        "      ]\n"
        "    }\n"
        "  ]\n"
        "}\n");
}

TEST_CASE("A line is broken where it would not fit, its comma included") {
  const Json value = parsed(R"({"key": [10, 20]})");
  const std::string one_line = "{\n  \"key\": [10, 20]\n}\n";  // 17 columns and one for a comma
  CHECK(write_json(value, 18) == one_line);
  CHECK(write_json(value, 17) == "{\n  \"key\": [\n    10,\n    20\n  ]\n}\n");
  CHECK(write_json(parsed("[\"\u00fc\u20ac\"]"), 7) == "[\"\u00fc\u20ac\"]\n");
}

TEST_CASE("Strings are escaped, and what is no UTF-8 is replaced") {
  CHECK(write_json(Json::string("\"\\/\b\f\n\r\t\x01\x7f\u00fc")) ==
        "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u007f\u00fc\"\n");
  CHECK(write_json(Json::string("a\xff")) == "\"a\uFFFD\"\n");
  CHECK(write_json(Json::string(std::string(1, '\0'))) == "\"\\u0000\"\n");
}

TEST_CASE("What is written is read back the same") {
  const Json value = parsed(R"({"a/~\"": [1e-5, -0.10, true, null, {"x": [[], {}, "\u00fc\n\ud83d\ude00"]}], "": 0})");
  for (const int width : {0, 10, 40, 120}) CHECK(parsed(write_json(value, width)).same_as(value));
}
