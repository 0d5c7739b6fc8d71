// SPDX-License-Identifier: Apache-2.0
#include "src/base/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace lockstep {

namespace {

/// The number of a character, of which utf8_length() was found.
char32_t code_point(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  const std::size_t length = character.size();
  char32_t code = length == 1 ? first : first & (0x7FU >> length);
  for (const char c : character.substr(1)) code = (code << 6) | (static_cast<unsigned char>(c) & 0x3FU);
  return code;
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = static_cast<unsigned char>(text[0]);
  if (byte < 0x80) return 1;
  const std::size_t length = byte < 0xC2 ? 0 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : byte < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_utf8_continuation(text[i])) return 0;
  }
  // The second byte tells overlong forms, surrogates and too large code points apart.
  const auto second = static_cast<unsigned char>(text[1]);
  if (byte == 0xE0 && second < 0xA0) return 0;
  if (byte == 0xED && second > 0x9F) return 0;
  if (byte == 0xF0 && second < 0x90) return 0;
  if (byte == 0xF4 && second > 0x8F) return 0;
  return length;
}

bool is_control_character(std::string_view character) {
  if (character.empty()) return false;
  const auto first = static_cast<unsigned char>(character[0]);
  // Those of Latin-1, U+0080 to U+009F, are two bytes.
  if (first == 0xC2 && character.size() == 2) return static_cast<unsigned char>(character[1]) < 0xA0;
  return first < 0x20 || first == 0x7F;
}

bool is_invisible(std::string_view character) {
  if (character.empty()) return false;
  if (static_cast<unsigned char>(character[0]) < 0x80) return is_control_character(character);
  struct Stretch {
    char32_t first, last;
  };
  // Control characters of Latin-1, the blank of braille, and what Unicode calls ignorable where it is not
  // known or formats a text.
  static constexpr Stretch stretches[] = {
      {0x80, 0x9F},     {0xAD, 0xAD},       {0x34F, 0x34F},     {0x61C, 0x61C},     {0x115F, 0x1160},
      {0x17B4, 0x17B5}, {0x180B, 0x180F},   {0x200B, 0x200F},   {0x2028, 0x202E},   {0x2060, 0x206F},
      {0x2800, 0x2800}, {0x3164, 0x3164},   {0xFE00, 0xFE0F},   {0xFEFF, 0xFEFF},   {0xFFA0, 0xFFA0},
      {0xFFF0, 0xFFFB}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF},
  };
  const char32_t code = code_point(character);
  return std::any_of(std::begin(stretches), std::end(stretches),
                     [&](const Stretch& stretch) { return code >= stretch.first && code <= stretch.last; });
}

std::string escaped_character(std::string_view character) {
  const auto code = static_cast<std::uint32_t>(code_point(character));
  if (code <= 0xFFFF) return fmt::format("\\u{:04x}", code);
  const std::uint32_t rest = code - 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
}

std::string shortened(std::string_view text, std::size_t longest) {
  if (text.size() <= longest) return std::string(text);
  std::size_t end = longest;
  while (end > 0 && is_utf8_continuation(text[end])) --end;
  return std::string(text.substr(0, end)) + "\xE2\x80\xA6";
}

}  // namespace lockstep
