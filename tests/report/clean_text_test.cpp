// SPDX-License-Identifier: Apache-2.0
#include "src/report/clean_text.h"

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("clean text keeps line feeds and characters, and nothing that a format cannot hold or nobody sees") {
  CHECK(report::clean_text("a\tb\x01\x1b[31mc\x7f\r\nd\re") == "a b\\u0001\\u001b[31mc\\u007f\nd\\u000de");
  CHECK(report::clean_text("a\u202Eb\u200Bc\U000E0041") == "a\\u202eb\\u200bc\\udb40\\udc41");
  CHECK(report::clean_text("é × 😀") == "é × 😀");
  CHECK(report::clean_text("a\xC2\x9B"
                           "31m\xC2\x85\xC2\xA0") == "a\\u009b31m\\u0085\xC2\xA0");  // those of Latin-1
  CHECK(report::clean_text("\xff") == "\xEF\xBF\xBD");
  CHECK(report::clean_text("a\xC3") == "a\xEF\xBF\xBD");                                // cut in the middle
  CHECK(report::clean_text("\xED\xA0\x80").size() == 9);                                // a surrogate, byte by byte
  CHECK(report::clean_text("\xEF\xBF\xBE\xEF\xBF\xBF") == "\xEF\xBF\xBD\xEF\xBF\xBD");  // no characters of XML
  CHECK(report::one_line_text("a\nb\n") == "a b");
}

TEST_CASE("text between tags has no signs of its own") {
  CHECK(report::markup_text(R"(<a href="b">&amp;)") == "&lt;a href=&quot;b&quot;&gt;&amp;amp;");
}

TEST_CASE("code hosts name files without detours") {
  CHECK(report::repository_path("./a/../b//c.json") == "b/c.json");
  CHECK(report::repository_path("/srv/./a.json") == "/srv/a.json");
  CHECK(report::repository_path("a\nb.json") == "a b.json");
}

TEST_CASE("a file's name in an address") {
  CHECK(report::url_text("scenarios/a b#1.json") == "scenarios/a%20b%231.json");
}
