// SPDX-License-Identifier: Apache-2.0
#include "src/report/readable_text.h"

#include <algorithm>
#include <array>

#include "src/base/utf8.h"

namespace lockstep::report {

namespace {

/// As Style writes them.
constexpr std::array<std::string_view, 5> colors = {"\x1b[31;1m", "\x1b[32;1m", "\x1b[1m", "\x1b[2m", "\x1b[0m"};

/// Those of Unicode that a runner skips at the beginning of a line; others are not seen, and escaped.
bool is_white_space(std::string_view character) {
  static constexpr std::array<std::string_view, 16> spaces = {
      "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82", "\xE2\x80\x83",
      "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89",
      "\xE2\x80\x8A", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
  return std::find(spaces.begin(), spaces.end(), character) != spaces.end();
}

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

void ReadableText::take_ascii(char c, std::string& out) {
  if (colon_held_) {
    colon_held_ = line_begins_ = false;
    if (c == ':') {
      out += kind_ == Kind::markup ? "&#58;:" : "\\::";
      return;
    }
    out += ':';
  }
  if (c == ':' && line_begins_ && kind_ != Kind::commands) {
    colon_held_ = true;
    return;
  }
  if (c == '[' && marks_ == 2) {
    out += kind_ == Kind::json ? "\\u005b" : kind_ == Kind::markup ? "&#91;" : "\\[";
    marks_ = 0;
    return;
  }
  if (c == '#') {
    marks_ = std::min(marks_ + 1, 2);
  } else if (marks_ != 2 || !is_ascii_letter(c)) {
    marks_ = 0;
  }
  line_begins_ = c == '\n' || (line_begins_ && (c == ' ' || c == '\t'));
  if (c != '\n' && c != '\t' && is_control_character({&c, 1})) {
    out += escaped_character({&c, 1});
  } else {
    out += c;
  }
}

std::string ReadableText::take(std::string_view text, bool last) {
  std::string out;
  out.reserve(text.size());
  const auto rest_is_part_of = [&](std::string_view whole) {
    return !last && text.size() < whole.size() && whole.starts_with(text);
  };
  while (!text.empty()) {
    const char c = text.front();
    if (c == '\x1b' && kind_ == Kind::text) {
      const auto color =
          std::find_if(colors.begin(), colors.end(), [&](std::string_view one) { return text.starts_with(one); });
      if (color != colors.end()) {
        out += *color;
        text.remove_prefix(color->size());
        continue;
      }
      if (std::any_of(colors.begin(), colors.end(), rest_is_part_of)) break;
    }
    if (static_cast<unsigned char>(c) < 0x80) {
      take_ascii(c, out);
      text.remove_prefix(1);
      continue;
    }
    const std::size_t length = utf8_length(text.substr(0, 4));
    if (length == 0 && text.size() < 4 && !last) break;
    const std::string_view character = text.substr(0, std::max<std::size_t>(length, 1));
    if (colon_held_) out += ':';
    marks_ = 0;
    line_begins_ = line_begins_ && !colon_held_ && is_white_space(character);
    colon_held_ = false;
    out += length == 0               ? "\xEF\xBF\xBD"
           : is_invisible(character) ? escaped_character(character)
                                     : std::string(character);
    text.remove_prefix(character.size());
  }
  held_ = text;
  return out;
}

std::string ReadableText::next(std::string_view piece) {
  if (kind_ == Kind::as_is) return std::string(piece);
  if (held_.empty()) return take(piece, false);
  const std::string whole = held_ + std::string(piece);
  return take(whole, false);
}

std::string ReadableText::rest() {
  const std::string held = held_;
  std::string out = take(held, true);
  if (colon_held_) out += ':';
  colon_held_ = false;
  return out;
}

std::string readable_text(std::string_view text) {
  ReadableText readable(ReadableText::Kind::text);
  const std::string begin = readable.next(text);
  return begin + readable.rest();
}

ReadableText::Kind kind_of_format(std::string_view format) {
  if (format == "json" || format == "sarif" || format == "gitlab") return ReadableText::Kind::json;
  if (format == "html" || format == "junit" || format == "svg") return ReadableText::Kind::markup;
  return format == "github" ? ReadableText::Kind::commands : ReadableText::Kind::text;
}

}  // namespace lockstep::report
