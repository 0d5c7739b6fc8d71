// SPDX-License-Identifier: Apache-2.0
#include "src/base/utf8.h"

namespace lockstep {

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

std::string shortened(std::string_view text, std::size_t longest) {
  if (text.size() <= longest) return std::string(text);
  std::size_t end = longest;
  while (end > 0 && is_utf8_continuation(text[end])) --end;
  return std::string(text.substr(0, end)) + "\xE2\x80\xA6";
}

}  // namespace lockstep
