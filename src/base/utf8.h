// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// Bytes of the character that `text` begins with; 0 if that is not valid UTF-8 (overlong forms,
/// surrogates and what lies above U+10FFFF are not) or `text` is empty.
std::size_t utf8_length(std::string_view text);

/// Whether the character is one of ASCII's or Latin-1's control characters, which move a terminal's cursor.
bool is_control_character(std::string_view character);

/// Whether nothing of the character is seen, or it moves or turns what is seen: control characters, those that change
/// the direction of a text, those of no width, and separators of lines. A text in which one stays does not read as it
/// is.
bool is_invisible(std::string_view character);

/// The character as JSON may write it: a backslash, u and four hexadecimal digits; above U+FFFF two halves.
std::string escaped_character(std::string_view character);

/// Whether `byte` is any but the first of a character's bytes.
inline bool is_utf8_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// For messages that quote: the text, or where it has more than `longest` bytes, its first characters in so many and an
/// ellipsis.
std::string shortened(std::string_view text, std::size_t longest);

}  // namespace lockstep
