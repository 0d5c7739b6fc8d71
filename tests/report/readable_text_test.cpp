// SPDX-License-Identifier: Apache-2.0
#include "src/report/readable_text.h"

#include <string>

#include "tests/catch.h"

using namespace lockstep;

namespace {

/// In pieces of so many bytes.
std::string through(std::string_view text, report::ReadableText::Kind kind, std::size_t piece = 1) {
  report::ReadableText readable(kind);
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += piece) out += readable.next(text.substr(at, piece));
  return out + readable.rest();
}

}  // namespace

TEST_CASE("no line begins with what a runner takes as a command, and none holds it") {
  using Kind = report::ReadableText::Kind;
  CHECK(report::readable_text("::error::x") == "\\::error::x");
  CHECK(report::readable_text("a\n \t::error::x\n:b\n:\n a::b") == "a\n \t\\::error::x\n:b\n:\n a::b");
  CHECK(report::readable_text("\u00A0\u3000::x") == "\u00A0\u3000\\::x");  // white space for the runner
  CHECK(report::readable_text("\x1b[1m::x") == "\x1b[1m\\::x");            // a colour in front
  CHECK(report::readable_text("a ##[group] ##vso[x] ###[y] # [z] ##1[") ==
        "a ##\\[group] ##vso\\[x] ###\\[y] # [z] ##1[");
  CHECK(report::readable_text("##az[x] ##AZ[x] ##{[x]") == "##az\\[x] ##AZ\\[x] ##{[x]");
  CHECK(through("::x\n##[y", Kind::markup) == "&#58;:x\n##&#91;y");
  CHECK(through("\"##vso[y\"", Kind::json) == "\"##vso\\u005by\"");
  CHECK(through("::error file=a::##[b]\n", Kind::commands) == "::error file=a::##\\[b]\n");
  CHECK(through("::x ##[y] \u202E\xff", Kind::as_is) == "::x ##[y] \u202E\xff");
}

TEST_CASE("what would not be seen is escaped, and the program's own colours are not") {
  CHECK(report::readable_text("a\u202Eb\u2066\r\x07") == "a\\u202eb\\u2066\\u000d\\u0007");
  CHECK(report::readable_text("\x1b[31;1mx\x1b[0m \x1b[8mhidden \x1b[2J") ==
        "\x1b[31;1mx\x1b[0m \\u001b[8mhidden \\u001b[2J");
  CHECK(report::readable_text("caf\u00E9 \u2026 \U0001F600\n\t") == "caf\u00E9 \u2026 \U0001F600\n\t");
  CHECK(report::readable_text("\xff\xC3") == "\uFFFD\uFFFD");
}

TEST_CASE("it does not matter where the pieces of a text are cut") {
  const std::string text = "::a\n \u3000::b \u202E \U000E0041 \x1b[31;1mred\x1b[0m \x1b[3x ##vso[c]\n:\xC3";
  for (const std::size_t piece : {1, 2, 3, 5, 7})
    CHECK(through(text, report::ReadableText::Kind::text, piece) == report::readable_text(text));
}
