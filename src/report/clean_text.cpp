// SPDX-License-Identifier: Apache-2.0
#include "src/report/clean_text.h"

#include <filesystem>

#include "src/base/utf8.h"

namespace lockstep {

std::string clean_text(std::string_view text) {
  static constexpr std::string_view replacement = "\xEF\xBF\xBD";
  std::string result;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, length);
    const auto byte = static_cast<unsigned char>(text.front());
    if (length == 0 || character == "\xEF\xBF\xBE" || character == "\xEF\xBF\xBF") {
      result += replacement;
    } else if ((byte < 0x20 && byte != '\n') || byte == 0x7f) {
      result += ' ';
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

std::string repository_path(std::string_view path) {
  return one_line_text(std::filesystem::path(path).lexically_normal().generic_string());
}

}  // namespace lockstep
