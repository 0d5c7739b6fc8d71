// SPDX-License-Identifier: Apache-2.0
#include "src/base/utf8.h"

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("texts are shortened between characters, with an ellipsis") {
  CHECK(shortened("four", 4) == "four");
  CHECK(shortened("fives", 4) == "five\u2026");
  CHECK(shortened("ab\u00E9d", 4) == "ab\u00E9\u2026");  // "é" has two bytes and just fits
  CHECK(shortened("abc\u00E9", 4) == "abc\u2026");       // and here one of its bytes would not
  CHECK(shortened("\U0001F600", 3) == "\u2026");
  CHECK(shortened("", 0).empty());
}

TEST_CASE("only what is valid UTF-8 has a length") {
  CHECK(utf8_length("a") == 1);
  CHECK(utf8_length("\u00E9") == 2);
  CHECK(utf8_length("\u2026") == 3);
  CHECK(utf8_length("\U0001F600") == 4);
  CHECK(utf8_length("") == 0);
  CHECK(utf8_length("\xC3") == 0);              // cut off
  CHECK(utf8_length("\xC0\xAF") == 0);          // overlong
  CHECK(utf8_length("\xED\xA0\x80") == 0);      // a surrogate
  CHECK(utf8_length("\xF4\x90\x80\x80") == 0);  // above U+10FFFF
}

TEST_CASE("what is not seen, or turns what is seen around, is known and has a number") {
  for (const char* seen : {"a", "\u00E9", "\u00A0", "\u2026", "\u3000", "\U0001F600", "\u2029x"})
    CHECK(is_invisible(std::string_view(seen).substr(0, utf8_length(seen))) == (seen == std::string_view("\u2029x")));
  for (const char* unseen :
       {"\x01", "\x7f", "\u0085", "\u00AD", "\u061C", "\u180E", "\u200B", "\u200F", "\u2028", "\u202A", "\u202E",
        "\u2060", "\u2066", "\u2069", "\u2800", "\uFEFF", "\uFE0F", "\U000E0041", "\U000E01EF"}) {
    CHECK(is_invisible(unseen));
  }
  CHECK_FALSE(is_invisible(""));
  CHECK(escaped_character("\x1b") == "\\u001b");
  CHECK(escaped_character("\u202E") == "\\u202e");
  CHECK(escaped_character("\U000E0041") == "\\udb40\\udc41");
}
