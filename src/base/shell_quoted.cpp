// SPDX-License-Identifier: Apache-2.0
#include "src/base/shell_quoted.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "src/base/utf8.h"

namespace lockstep {

std::string shell_quoted(const std::string& word) {
  std::string plain, escaped;
  bool needs_escapes = false;
  for (std::string_view rest = word; !rest.empty();) {
    const std::size_t length = utf8_length(rest);
    const std::string_view character = rest.substr(0, std::max<std::size_t>(length, 1));
    rest.remove_prefix(character.size());
    plain += character == "'" ? "'\\''" : character;
    if (length == 0 || is_control_character(character)) {
      needs_escapes = true;
      for (const char c : character) escaped += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    } else {
      if (character == "'" || character == "\\") escaped += '\\';
      escaped += character;
    }
  }
  // bash, zsh and the sh of POSIX 2024 read $'…'.
  if (needs_escapes) return fmt::format("$'{}'", escaped);
  if (word.empty() || word.find_first_of(" \"'`$&|;<>()*?[]{}\\!#~") != std::string::npos)
    return fmt::format("'{}'", plain);
  return word;
}

}  // namespace lockstep
