// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lockstep/rational.h"
#include "src/importers/syntax.h"

namespace lockstep::importers {

Json scalar_value(std::string text, const Place& place) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return Json().at(place);
  if (text == "true" || text == "True" || text == "TRUE") return Json::boolean(true, place);
  if (text == "false" || text == "False" || text == "FALSE") return Json::boolean(false, place);
  const bool digits = text.find_first_of("0123456789") != std::string::npos &&
                      text.find_first_not_of("0123456789+-.eE_") == std::string::npos;
  if (digits) {
    std::string number = text;
    number.erase(std::remove(number.begin(), number.end(), '_'), number.end());
    if (number.starts_with('+')) number.erase(0, 1);
    if (number.ends_with('.')) number.pop_back();
    if (number.starts_with('.')) number.insert(0, "0");
    if (Rational::parse(number)) return Json::number(std::move(number), place);
  }
  return Json::string(std::move(text), place);
}

Lines::Lines(std::string_view text) : begins_{0}, size_(text.size()) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') begins_.push_back(i + 1);
  }
}

std::size_t Lines::offset(int line, int column) const {
  if (line < 0 || column < 0) return 0;
  const auto index = std::min(static_cast<std::size_t>(line), begins_.size() - 1);
  return std::min(begins_[index] + static_cast<std::size_t>(column), size_);
}

}  // namespace lockstep::importers
