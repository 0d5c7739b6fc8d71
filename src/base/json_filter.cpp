// SPDX-License-Identifier: Apache-2.0
#include "src/base/json_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "src/base/utf8.h"

namespace lockstep {

namespace {

constexpr std::string_view white_space = " \t\r\n";

bool check_text(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics) {
  const std::string_view text = source->text;
  const auto refuse = [&](std::size_t begin, std::size_t end, std::string message) {
    diagnostics.add({source, begin, end, ""}, std::move(message));
    return false;
  };
  if (text.substr(0, 3) == "\xEF\xBB\xBF") {
    return refuse(0, 3, "the file begins with a byte order mark; expected UTF-8 without one");
  }
  if (text.substr(0, 2) == "\xFF\xFE" || text.substr(0, 2) == "\xFE\xFF") {
    return refuse(0, 2, "the file is written in UTF-16; expected UTF-8");
  }
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) return refuse(i, i + 1, "expected text, found a NUL byte; this is no JSON file");
    const std::size_t length = byte < 0x80 ? 1 : utf8_length(text.substr(i, 4));
    if (length == 0) {
      return refuse(i, i + 1,
                    fmt::format("expected text in UTF-8, found the byte 0x{:02X}, which has no place there", byte));
    }
    i += length;
  }
  if (text.find_first_not_of(white_space) == std::string_view::npos) {
    return refuse(0, 0, "the file is empty; expected a JSON object");
  }
  return true;
}

/// Replaces [begin, end) by spaces; lines stay where they are.
void blank(std::string& text, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    if (text[i] != '\n') text[i] = ' ';
  }
}

/// One past the string that begins at `begin`, or the end of its line where it is not closed.
std::size_t skip_string(const std::string& text, std::size_t begin) {
  std::size_t i = begin + 1;
  while (i < text.size() && text[i] != '"' && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
  return std::min(text.size(), i + 1);
}

}  // namespace

std::optional<std::string> plain_json_text(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics) {
  if (!check_text(source, diagnostics)) return std::nullopt;
  std::string text = source->text;
  constexpr std::size_t none = std::string::npos;
  std::size_t comma = none;  // the last thing before here, if it may turn out to be a trailing comma
  char previous = '[';       // the last thing before here; at the front of the file as in front of a value
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c == '/' && next == '/') {
      const std::size_t end = std::min(text.find('\n', i), text.size());
      blank(text, i, end);
      i = end;
    } else if (c == '/' && next == '*') {
      const std::size_t end = text.find("*/", i + 2);
      if (end == none) {
        diagnostics.add({source, i, i + 2, ""}, "this comment is not closed; expected \"*/\" after it");
        return std::nullopt;
      }
      blank(text, i, end + 2);
      i = end + 2;
    } else if (white_space.find(c) != none) {
      ++i;
    } else {
      if (comma != none && (c == ']' || c == '}')) text[comma] = ' ';
      // A comma that follows nothing is a mistake, which the parser will find.
      comma = c == ',' && std::string_view("[{,:").find(previous) == none ? i : none;
      previous = c;
      i = c == '"' ? skip_string(text, i) : i + 1;
    }
  }
  if (text.find_first_not_of(white_space) == none) {
    diagnostics.add({source, 0, 0, ""}, "the file holds nothing but comments; expected a JSON object");
    return std::nullopt;
  }
  return text;
}

}  // namespace lockstep
