// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// "elements", "classes", "entries", "axes".
std::string plural_of(std::string_view noun);

/// "1 element", "3 elements", "0 more cases".
std::string counted(std::integral auto number, std::string_view noun) {
  return fmt::format("{} {}", number, number == 1 ? std::string(noun) : plural_of(noun));
}

/// "a, b and c"; "" for none.
std::string listed_words(std::vector<std::string> words);

}  // namespace lockstep
