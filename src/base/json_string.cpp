// SPDX-License-Identifier: Apache-2.0
#include "src/base/json_string.h"

#include <algorithm>

#include "src/base/utf8.h"

namespace lockstep {

namespace {

bool stands_as_it_is(char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; }

/// The letter that stands for `c` behind a backslash; 0 where JSON has none.
char letter_of(char c) {
  constexpr std::string_view characters = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt";
  const std::size_t place = characters.find(c);
  return place == std::string_view::npos ? '\0' : letters[place];
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const auto plain =
        static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), stands_as_it_is) - text.begin());
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(length, 1));
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (const char letter = letter_of(character[0]); letter != '\0') {
      out += {'\\', letter};
    } else if (is_invisible(character)) {
      out += escaped_character(character);
    } else {
      out += character;
    }
    text.remove_prefix(character.size());
  }
  out += '"';
}

}  // namespace lockstep
