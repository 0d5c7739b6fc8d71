// SPDX-License-Identifier: Apache-2.0
#include "src/base/json_string.h"

#include "lockstep/json.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

std::string json_string(std::string_view text) {
  std::string out = ">";
  append_json_string(out, text);
  return out.substr(1);
}

}  // namespace

TEST_CASE("A string is written in quotes, with what JSON does not allow in one escaped") {
  CHECK(json_string("") == R"("")");
  CHECK(json_string("dp × 2 <b>/~") == R"("dp × 2 <b>/~")");
  CHECK(json_string("\"\\\b\f\n\r\t") == R"("\"\\\b\f\n\r\t")");
  CHECK(json_string(std::string_view("a\0b\x1f\x7f", 5)) == R"("a\u0000b\u001f\u007f")");
}

TEST_CASE("What would not be seen in a string is written as its number") {
  CHECK(json_string("a\u200b\u0085z") == R"("a\u200b\u0085z")");
  CHECK(json_string("\U000E0041") == R"("\udb40\udc41")");
  CHECK(json_string("\U0001F600") == "\"\U0001F600\"");
}

TEST_CASE("What is no UTF-8 in a string is replaced, byte by byte") {
  CHECK(json_string("a\xff\xc3") == "\"a\uFFFD\uFFFD\"");
  CHECK(json_string("\xC0\xAF!") == "\"\uFFFD\uFFFD!\"");
}

TEST_CASE("Every character is read back from a string as it was") {
  std::string every;
  for (int c = 0; c < 0x80; ++c) every += static_cast<char>(c);
  every += "ü\u202E\U0001F600";
  Diagnostics diagnostics;
  const Json back = parse_json(std::make_shared<const Source>(Source{"t", json_string(every)}), diagnostics);
  REQUIRE(diagnostics.empty());
  CHECK(back.text() == every);
}
