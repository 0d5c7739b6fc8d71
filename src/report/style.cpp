// SPDX-License-Identifier: Apache-2.0
#include "src/report/style.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/report/findings.h"

namespace lockstep::report {

std::string Style::paint(std::string_view code, std::string_view text) const {
  return color_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

std::string Style::verdict(Verdict verdict) const {
  return verdict == Verdict::match ? good(name_of(verdict)) : bad(name_of(verdict));
}

std::size_t text_width(std::string_view text) {
  const auto starts_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

std::string padded(std::string_view text, std::size_t width) {
  const std::size_t taken = text_width(text);
  return std::string(text) + std::string(taken < width ? width - taken : 0, ' ');
}

std::string number_list(const std::vector<int>& numbers, std::size_t most) {
  std::string list;
  std::size_t stretches = 0;
  for (std::size_t begin = 0; begin < numbers.size();) {
    std::size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (stretches++ == most) return list + fmt::format(" and {} more", numbers.size() - begin);
    if (begin > 0) list += ", ";
    list += std::to_string(numbers[begin]);
    if (end - begin > 1) list += fmt::format("{}{}", end - begin == 2 ? ", " : "-", numbers[end - 1]);
    begin = end;
  }
  return list;
}

std::string rank_list(const std::vector<int>& ranks, std::size_t most) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + number_list(ranks, most);
}

std::string interval_text(const Interval& interval) { return fmt::format("[{}, {})", interval.begin, interval.end); }

std::string coordinates_text(const Mesh& mesh, int rank) {
  std::string text;
  for (const auto& [axis, coordinate] : coordinates(mesh, rank)) {
    if (!text.empty()) text += ' ';
    text += fmt::format("{} {}", axis, coordinate);
  }
  return text;
}

}  // namespace lockstep::report
