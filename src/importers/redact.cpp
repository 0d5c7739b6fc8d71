// SPDX-License-Identifier: Apache-2.0
#include "src/importers/redact.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>

#include "lockstep/rational.h"

namespace lockstep::importers {

namespace {

constexpr std::string_view punctuation = " \t\r\n{}[]()<>,:;=\"'#|&\\$`*";

bool is_punctuation(char c) { return punctuation.find(c) != std::string_view::npos; }

bool is_name(std::string_view word) {
  return std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  });
}

bool is_number(std::string_view word) { return word.size() <= 12 && Rational::parse(word).has_value(); }

bool is_literal(std::string_view word) {
  for (const std::string_view known : {"@", "true", "false", "True", "False", "null", "None", "none", "auto", "export",
                                       "if", "then", "else", "fi", "for", "do", "done"}) {
    if (word == known) return true;
  }
  return std::all_of(word.begin(), word.end(), [](char c) { return c == '.' || c == '-'; });
}

/// Whether the word at [begin, end) stands where a key stands: at the start of a line or entry, with a colon or an
/// equals sign behind it, or the dots of the resolved arguments.
bool is_key(std::string_view text, std::size_t begin, std::size_t end) {
  std::size_t before = begin;
  while (before > 0 && (text[before - 1] == '"' || text[before - 1] == '\'')) --before;
  const bool at_start = before == 0 || std::string_view(" \t\n{,(-").find(text[before - 1]) != std::string_view::npos;
  if (!at_start) return false;
  const bool quoted = end < text.size() && (text[end] == '"' || text[end] == '\'');
  std::size_t after = quoted ? end + 1 : end;
  if (after < text.size() && text[after] == '=') {
    // Base64 is padded with equals signs: behind those of a key there is a value.
    const bool value_follows =
        after + 1 < text.size() && std::string_view("= \t\r\n,;)]}").find(text[after + 1]) == std::string_view::npos;
    return value_follows && (quoted || before == begin);
  }
  while (after < text.size() && text[after] == ' ') ++after;
  const auto next = [&](std::size_t i) { return after + i < text.size() ? text[after + i] : '\n'; };
  if (next(0) == ':') return quoted || std::isspace(static_cast<unsigned char>(next(1))) != 0;
  return (next(0) == '=' && next(1) != '=' && next(1) != '\n') || (next(0) == '.' && next(1) == '.');
}

/// Whether `NAME=` stands somewhere in the text, in front of a word: then NAME is shown there anyway.
bool is_assigned(std::string_view text, std::string_view name) {
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if (end < text.size() && text[end] == '=' && is_key(text, at, end)) return true;
  }
  return false;
}

/// Whether the dollar sign at `at` begins a word, as that of a variable does; inside of a word it may be a password's.
bool begins_variable(std::string_view text, std::size_t at) {
  const auto separates = [&](std::size_t i) {
    return std::string_view(" \t\r\n=(").find(text[i]) != std::string_view::npos;
  };
  if (at > 0 && text[at - 1] == '"') --at;
  return at == 0 || separates(at - 1);
}

bool is_harmless(std::string_view text, std::size_t begin, std::size_t end) {
  const std::string_view word = text.substr(begin, end - begin);
  if (is_number(word) || is_literal(word)) return true;
  if (!is_name(word)) return false;
  const bool bare = begin > 0 && text[begin - 1] == '$';
  if (bare || (begin > 1 && text[begin - 1] == '{' && text[begin - 2] == '$')) {
    return begins_variable(text, begin - (bare ? 1 : 2)) && (is_environment_name(word) || is_assigned(text, word));
  }
  if (word.starts_with("--") && word.find('.') == std::string_view::npos) return true;
  return is_key(text, begin, end);
}

}  // namespace

std::string shown_key(std::string_view key) {
  constexpr std::size_t longest = 120;
  return is_name(key) && key.size() <= longest ? std::string(key) : std::string(std::min(key.size(), longest), '*');
}

bool is_environment_name(std::string_view word) {
  constexpr std::size_t longest = 40;
  const auto capital = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; };
  return word.size() <= longest && std::all_of(word.begin(), word.end(), capital);
}

std::string redacted(std::string_view text) {
  std::string result(text);
  for (std::size_t begin = 0; begin < text.size();) {
    if (is_punctuation(text[begin])) {
      ++begin;
      continue;
    }
    std::size_t end = begin;
    while (end < text.size() && !is_punctuation(text[end])) ++end;
    if (!is_harmless(text, begin, end)) std::fill(result.begin() + begin, result.begin() + end, '*');
    begin = end;
  }
  return result;
}

std::vector<Diagnostic> redacted(std::vector<Diagnostic> diagnostics) {
  std::map<const Source*, std::shared_ptr<const Source>> sources;
  for (Diagnostic& diagnostic : diagnostics) {
    if (diagnostic.place.source == nullptr) continue;
    std::shared_ptr<const Source>& source = sources[diagnostic.place.source.get()];
    if (source == nullptr) {
      source = std::make_shared<const Source>(
          Source{diagnostic.place.source->name, redacted(diagnostic.place.source->text)});
    }
    diagnostic.place.source = source;
  }
  return diagnostics;
}

}  // namespace lockstep::importers
