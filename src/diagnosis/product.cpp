// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/product.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/expression/node.h"

namespace lockstep::diagnosis {

Product::Product(const Expression& expression) { multiply(expression.tree(), false); }

void Product::multiply(const Expression::Node& node, bool divide) {
  using Kind = Expression::Node::Kind;
  const std::string text = expression::print(node);
  const Rational* number = node.kind == Kind::value ? std::get_if<Rational>(&node.value) : nullptr;
  if (node.kind == Kind::binary && (node.text == "*" || node.text == "/")) {
    multiply(*node.children[0], divide);
    multiply(*node.children[1], divide != (node.text == "/"));
  } else if (number != nullptr && !number->is_integer()) {
    multiply(text.substr(0, text.find('/')), divide);
    multiply(text.substr(text.find('/') + 1), !divide);
  } else if (node.kind == Kind::binary || node.kind == Kind::negate || node.kind == Kind::logical_not) {
    multiply(fmt::format("({})", text), divide);
  } else {
    multiply(text, divide);
  }
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

bool Product::contains(const std::vector<std::string>& factors, const Product& other) {
  return std::all_of(other.numerator_.begin(), other.numerator_.end(), [&](const std::string& factor) {
    return std::find(factors.begin(), factors.end(), factor) != factors.end();
  });
}

Product Product::without_numbers() const {
  const auto is_number = [](const std::string& factor) {
    return factor.find_first_not_of("0123456789.") == std::string::npos;
  };
  Product product = *this;
  std::erase_if(product.numerator_, is_number);
  std::erase_if(product.denominator_, is_number);
  return product;
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
  std::string top = numerator_.empty() ? "1" : fmt::format("{}", fmt::join(numerator_, " * "));
  if (denominator_.empty()) return top;
  const std::string bottom = fmt::format("{}", fmt::join(denominator_, " * "));
  return fmt::format("{} / {}", top, denominator_.size() == 1 ? bottom : fmt::format("({})", bottom));
}

}  // namespace lockstep::diagnosis
