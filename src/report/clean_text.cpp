// SPDX-License-Identifier: Apache-2.0
#include "src/report/clean_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "src/base/utf8.h"

namespace lockstep::report {

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

namespace {

bool is_latin_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_word_character(char c) { return is_latin_letter(c) || (c >= '0' && c <= '9') || c == '_'; }

/// Whether `before` ends with the word, in any case.
bool ends_with_word(std::string_view before, std::string_view word) {
  if (before.size() < word.size()) return false;
  before.remove_prefix(before.size() - word.size());
  return std::equal(word.begin(), word.end(), before.begin(),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
}

/// Whether GitHub or GitLab makes something of text[at] and what follows it: a mention, a link to an issue or an
/// address, a picture. They look for it in the page, where entities and backslashes are gone.
bool begins_reference(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at), behind = text.substr(at + 1);
  const char next = behind.empty() ? ' ' : behind.front();
  switch (text[at]) {
    case '@':
      return true;
    case ':':  // "https://", ":smile:", "mailto:"
      return next == '/' || is_word_character(next) || next == '+' || next == '-';
    case '.':
      return ends_with_word(before, "www");
    case '-':
      return ends_with_word(before, "gh") && next >= '0' && next <= '9';
    case '#':
    case '!':
    case '%':
    case '&':
    case '~':
    case '$':
      return is_word_character(next) || next == '"';
    default:
      return false;
  }
}

}  // namespace

std::string markdown_text(std::string_view text) {
  // Not seen and not part of any word; as an entity, so that nothing is hidden in the Markdown.
  static constexpr std::string_view gap = "&#8203;";
  std::string result;
  const std::string line = one_line_text(text);
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    if (c == '$') {
      result += "<span>&#36;</span>";  // as GitHub says it is kept from being mathematics
      continue;
    }
    if (std::string_view("\\`*_{}[]<>#|~&!").find(c) != std::string_view::npos) result += '\\';
    const bool references = begins_reference(line, at);
    // A mark stands before the gap, but for those that end a word.
    if (references && (c == '.' || c == '-')) result += gap;
    result += c;
    if (references && c != '.' && c != '-') result += gap;
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

}  // namespace lockstep::report
