// SPDX-License-Identifier: Apache-2.0
#include "src/report/clean_text.h"

#include <fmt/format.h>

#include <filesystem>

#include "src/base/utf8.h"

namespace lockstep {

std::string clean_text(std::string_view text) {
  static constexpr std::string_view replacement = "\xEF\xBF\xBD";
  std::string result;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, length);
    if (length == 0 || character == "\xEF\xBF\xBE" || character == "\xEF\xBF\xBF") {
      result += replacement;
    } else if (text.starts_with("\r\n")) {
      // The end of a line.
    } else if (character == "\t") {
      result += ' ';
    } else if (character != "\n" && is_invisible(character)) {
      result += escaped_character(character);
    } else {
      result += character;
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

std::string one_line_text(std::string_view text) {
  std::string result = clean_text(text);
  for (char& c : result) c = c == '\n' ? ' ' : c;
  while (!result.empty() && result.back() == ' ') result.pop_back();
  return result;
}

std::string file_text(std::string_view path) {
  const std::string text = one_line_text(path);
  return text.find_first_of(" :") == 0 ? "./" + text : text;
}

std::string markdown_text(std::string_view text) {
  std::string result;
  for (const char c : one_line_text(text)) {
    if (std::string_view("\\`*_{}[]<>#|~").find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

std::string markdown_code(std::string_view text) {
  const std::string line = one_line_text(text);
  std::string quotes = "`";
  while (line.find(quotes) != std::string::npos) quotes += '`';
  const bool spaced = quotes.size() > 1;
  return fmt::format("{0}{1}{2}{1}{0}", quotes, spaced ? " " : "", line);
}

std::string markdown_cell(std::string_view text) {
  return text.find('|') == std::string_view::npos ? markdown_code(text) : markdown_text(text);
}

std::string markup_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string url_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (plain || std::string_view("-._~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string repository_path(std::string_view path) {
  return one_line_text(std::filesystem::path(path).lexically_normal().generic_string());
}

}  // namespace lockstep
