// SPDX-License-Identifier: Apache-2.0
#include "src/base/json_syntax_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/utf8.h"

namespace lockstep {

namespace {

using After = JsonPosition::After;
using Container = JsonPosition::Container;

constexpr std::size_t longest_quote = 40;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$'; }
bool is_word(char c) { return is_digit(c) || is_letter(c) || c == '.' || c == '+' || c == '-'; }

std::size_t skip_space(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(" \t\r\n", at), text.size());
}

std::string in_quotes(std::string_view text) { return shortened(text, longest_quote); }

/// What stands at `begin`, in words for "found …", and what that mistake usually is.
struct Found {
  std::size_t end = 0;
  std::string words = {};
  std::string hint = {};
  bool is_number = false;  ///< or what somebody may have meant as one
};

/// The value that somebody meant who wrote `word` as another language does.
std::string meant(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (lower == "true" || lower == "false" || lower == "null") return "write " + lower;
  if (lower == "none" || lower == "nil" || lower == "undefined") return "write null";
  if (lower == "nan" || lower == "inf" || lower == "infinity") return "JSON has no such number";
  return "";
}

Found find_at(std::string_view text, std::size_t begin) {
  if (begin >= text.size()) return {begin, "the end of the file"};
  const char c = text[begin];
  if (c == '"') {
    std::size_t end = begin + 1;
    while (end < text.size() && text[end] != '"' && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
    end = std::min(end, text.size());
    if (end < text.size() && text[end] == '"') ++end;
    return {end, "the string " + in_quotes(text.substr(begin, end - begin))};
  }
  if (is_word(c)) {
    std::size_t end = begin;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::string word = in_quotes(text.substr(begin, end - begin));
    if (!is_letter(c)) return {end, "the number " + word, "", true};
    return {end, "the word " + word, meant(word), false};
  }
  if (c == '\'') return {begin + 1, "a single quote", "JSON has double quotes only", false};
  if (c == '#') return {begin + 1, "\"#\"", "comments begin with //", false};
  const std::size_t length = std::max<std::size_t>(1, utf8_length(text.substr(begin, 4)));
  const std::string_view character = text.substr(begin, length);
  Found found{begin + length, fmt::format("\"{}\"", character)};
  if (character == "\xE2\x80\x9C" || character == "\xE2\x80\x9D" || character == "\xE2\x80\x98" ||
      character == "\xE2\x80\x99") {
    found.hint = "JSON has straight double quotes only";
  } else if (static_cast<unsigned char>(c) < 0x20) {
    found.words = fmt::format("the control character 0x{:02X}", static_cast<unsigned char>(c));
  }
  return found;
}

/// Their value, or -1.
int four_hex_digits(std::string_view text, std::size_t at) {
  int value = 0;
  for (std::size_t i = at; i < at + 4; ++i) {
    const char c = i < text.size() ? text[i] : '\0';
    if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) return -1;
    value = value * 16 + (is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return value;
}

/// The first mistake in the string that begins at `begin`.
std::optional<JsonSyntaxError> mistake_in_string(std::string_view text, std::size_t begin) {
  for (std::size_t i = begin + 1; i < text.size() && text[i] != '\n';) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '"') return std::nullopt;
    if (c == '\t') return JsonSyntaxError{i, i + 1, "a string cannot hold a tab as it is; write \\t"};
    if (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n') break;
    if (c < 0x20) {
      return JsonSyntaxError{
          i, i + 1, fmt::format("a string cannot hold the control character 0x{0:02X} as it is; write \\u{0:04x}", c)};
    }
    if (c != '\\') {
      ++i;
      continue;
    }
    const char escape = i + 1 < text.size() ? text[i + 1] : '\n';
    if (escape == '\n' || escape == '\r') break;
    if (escape != 'u') {
      if (std::string_view("\"\\/bfnrt").find(escape) == std::string_view::npos) {
        const std::size_t length = 1 + std::max<std::size_t>(1, utf8_length(text.substr(i + 1, 4)));
        return JsonSyntaxError{
            i, i + length,
            fmt::format("\"{}\" is no escape of JSON; a backslash itself is written \\\\", text.substr(i, length))};
      }
      i += 2;
      continue;
    }
    const int unit = four_hex_digits(text, i + 2);
    if (unit < 0) return JsonSyntaxError{i, i + 2, "expected four hexadecimal digits after \\u"};
    std::size_t length = 6;
    if (unit >= 0xD800 && unit < 0xE000) {
      const int second = text.substr(i + 6, 2) == "\\u" ? four_hex_digits(text, i + 8) : -1;
      if (unit >= 0xDC00 || second < 0xDC00 || second > 0xDFFF) {
        return JsonSyntaxError{
            i, i + 6,
            fmt::format("{} is half of a character; expected a pair such as \\ud83d\\ude00", text.substr(i, 6))};
      }
      length = 12;
    }
    i += length;
  }
  std::size_t end = std::min(text.find('\n', begin), text.size());
  while (end > begin + 1 && (text[end - 1] == ' ' || text[end - 1] == '\r')) --end;
  return JsonSyntaxError{begin, end, "this string is not closed; expected a double quote before the end of the line"};
}

/// What could have stood behind what was read.
enum class Expected { value, first_value, key, first_key, colon, comma, end };

/// Moves `at` past what is right there, a colon or a comma, to what is wrong.
Expected find_mistake(std::string_view text, const JsonPosition& position, std::size_t& at) {
  at = skip_space(text, position.end);
  const bool in_object = position.container == Container::object;
  const auto take = [&](char c) {
    if (at >= text.size() || text[at] != c) return false;
    at = skip_space(text, at + 1);
    return true;
  };
  switch (position.after) {
    case After::nothing:
      return Expected::value;
    case After::open_bracket:
      return in_object ? Expected::first_key : Expected::first_value;
    case After::key:
      return take(':') ? Expected::value : Expected::colon;
    case After::value:
      break;
  }
  if (position.bare && at == position.end && at < text.size() && is_word(text[at])) {
    at = position.begin;  // "01" and "truex" were read as "0" and "true" and then something more
    return Expected::value;
  }
  if (position.container == Container::none) return Expected::end;
  if (!take(',')) return Expected::comma;
  return in_object ? Expected::key : Expected::value;
}

std::string in_words(Expected expected, const JsonPosition& position) {
  const bool in_object = position.container == Container::object;
  const std::string key = fmt::format("\"{}\"", in_quotes(position.key));
  switch (expected) {
    case Expected::value:
      return in_object ? fmt::format("a value for the key {}", key) : "a value";
    case Expected::first_value:
      return "a value or \"]\"";
    case Expected::key:
      return "a key in double quotes";
    case Expected::first_key:
      return "a key in double quotes or \"}\"";
    case Expected::colon:
      return fmt::format("\":\" after the key {}", key);
    case Expected::comma:
      return in_object ? fmt::format("\",\" or \"}}\" after the value of {}", key)
                       : "\",\" or \"]\" after an item of the array";
    case Expected::end:
      return "the end of the file";
  }
  return "";
}

std::string hint_for(Expected expected, const JsonPosition& position, std::string_view text, std::size_t at,
                     const Found& found) {
  const bool in_object = position.container == Container::object;
  const std::string container =
      fmt::format("the {} that begins in line {}", in_object ? "object" : "array", position.container_line);
  if (at >= text.size()) return position.container == Container::none ? "" : container + " is not closed";
  const char c = text[at];
  switch (expected) {
    case Expected::comma:
      if (c == ']' || c == '}') return fmt::format("{} is closed by \"{}\"", container, in_object ? '}' : ']');
      if (at == position.end && text[at - 1] == '"') return "a quote inside a string is written \\\"";
      if (c == '"' || c == '\'' || c == '{' || c == '[' || is_word(c)) return "a comma is missing";
      return found.hint;
    case Expected::key:
    case Expected::first_key:
      if (is_letter(c)) return fmt::format("write \"{}\"", in_quotes(text.substr(at, found.end - at)));
      return c == ',' ? "there is a comma too many" : found.hint;
    case Expected::value:
    case Expected::first_value:
      if (found.is_number) return "numbers are written like 12, -3, 0.5 or 5e8";
      if (is_letter(c) && found.hint.empty()) return "strings are written in double quotes";
      return c == ',' ? "there is a comma too many" : found.hint;
    case Expected::colon:
    case Expected::end:
      return found.hint;
  }
  return "";
}

}  // namespace

JsonSyntaxError explain_json_syntax_error(std::string_view text, const JsonPosition& position) {
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  std::size_t at = 0;
  const Expected expected = find_mistake(text, position, at);
  if (at < text.size() && text[at] == '"' && expected != Expected::comma && expected != Expected::colon &&
      expected != Expected::end) {
    if (auto mistake = mistake_in_string(text, at)) return std::move(*mistake);
  }
  Found found = find_at(text, at);
  const bool wants_value = expected == Expected::value || expected == Expected::first_value;
  if (wants_value && found.is_number) found.words = in_quotes(text.substr(at, found.end - at));
  const std::string hint = hint_for(expected, position, text, at, found);
  return {at, found.end,
          fmt::format("expected {}, found {}{}{}", in_words(expected, position), found.words, hint.empty() ? "" : "; ",
                      hint)};
}

}  // namespace lockstep
