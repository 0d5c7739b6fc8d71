// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/product.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace lockstep {

namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

/// Whether all of it stands in one pair of brackets.
bool in_brackets(std::string_view text) {
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return false;
  int depth = 0;
  for (std::size_t at = 0; at + 1 < text.size(); ++at) {
    if (text[at] == '(') ++depth;
    if (text[at] == ')' && --depth == 0) return false;
  }
  return true;
}

/// Whether it has an operator other than * and / outside of brackets.
bool is_more_than_a_product(std::string_view text) {
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (depth == 0 && (c == '+' || c == '-' || c == '=' || c == '<' || c == '>' || c == '!')) return true;
  }
  for (const std::string_view word : {" and ", " or ", "not "}) {
    if (text.find(word) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

Product Product::parse(std::string_view text) {
  Product product;
  product.parse_into(text, false);
  return product;
}

void Product::parse_into(std::string_view text, bool divide) {
  text = trimmed(text);
  while (in_brackets(text)) text = trimmed(text.substr(1, text.size() - 2));
  if (is_more_than_a_product(text)) return multiply(fmt::format("({})", text), divide);
  std::size_t begin = 0;
  int depth = 0;
  bool under = divide;
  const auto take = [&](std::size_t end) {
    const std::string_view part = trimmed(text.substr(begin, end - begin));
    if (part.size() < text.size()) {
      parse_into(part, under);
    } else {
      multiply(part, under);
    }
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '(') ++depth;
    if (text[at] == ')') --depth;
    if (depth > 0 || (text[at] != '*' && text[at] != '/')) continue;
    take(at);
    under = divide != (text[at] == '/');
    begin = at + 1;
  }
  take(text.size());
}

void Product::multiply(std::string_view factor, bool divide) {
  if (factor == "1" || factor.empty()) return;
  std::vector<std::string>& other = divide ? numerator_ : denominator_;
  const auto found = std::find(other.begin(), other.end(), factor);
  if (found != other.end()) {
    other.erase(found);
  } else {
    (divide ? denominator_ : numerator_).emplace_back(factor);
  }
}

Product Product::times(const Product& other) const {
  Product product = *this;
  for (const std::string& factor : other.numerator_) product.multiply(factor, false);
  for (const std::string& factor : other.denominator_) product.multiply(factor, true);
  return product;
}

Product Product::over(const Product& other) const {
  Product inverse;
  inverse.numerator_ = other.denominator_;
  inverse.denominator_ = other.numerator_;
  return times(inverse);
}

std::string Product::to_string() const {
  const std::string top = numerator_.empty() ? "1" : fmt::format("{}", fmt::join(numerator_, " * "));
  if (denominator_.empty()) return top;
  const std::string bottom = fmt::format("{}", fmt::join(denominator_, " * "));
  return fmt::format("{} / {}", top, denominator_.size() == 1 ? bottom : fmt::format("({})", bottom));
}

}  // namespace lockstep
