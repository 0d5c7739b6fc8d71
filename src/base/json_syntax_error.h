// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// What a reader of JSON had seen when it met something that cannot stand there.
struct JsonPosition {
  enum class After { nothing, open_bracket, key, value };
  enum class Container { none, array, object };

  After after = After::nothing;    ///< the last thing read
  std::size_t begin = 0, end = 0;  ///< where it stands
  bool bare = false;               ///< whether it is a number, true, false or null
  Container container = Container::none;
  int container_line = 0;  ///< where the innermost container begins
  std::string key;         ///< its last key
};

struct JsonSyntaxError {
  std::size_t begin = 0, end = 0;  ///< what is wrong, in the text
  std::string message;
};

/// Says what was expected and what was found behind `position`. `text` has neither comments nor
/// trailing commas and cannot be continued there.
JsonSyntaxError explain_json_syntax_error(std::string_view text, const JsonPosition& position);

}  // namespace lockstep
