// SPDX-License-Identifier: Apache-2.0
#include "src/base/counted.h"

#include <fmt/ranges.h>

namespace lockstep {

std::string plural_of(std::string_view noun) {
  const auto without = [&](std::size_t letters) { return std::string(noun.substr(0, noun.size() - letters)); };
  if (noun.ends_with("axis")) return without(2) + "es";
  if (noun.ends_with("ry")) return without(1) + "ies";
  if (noun.ends_with("ch") || noun.ends_with("s")) return without(0) + "es";
  return without(0) + "s";
}

std::string listed_words(std::vector<std::string> words) {
  if (words.empty()) return "";
  const std::string last = words.back();
  words.pop_back();
  return words.empty() ? last : fmt::format("{} and {}", fmt::join(words, ", "), last);
}

}  // namespace lockstep
