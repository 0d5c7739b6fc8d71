// SPDX-License-Identifier: Apache-2.0
#include "src/expression/values.h"

#include <algorithm>

#include "src/expression/digits.h"

namespace lockstep::expression {
namespace {

/// "Expected a number, but `a == b` is the truth value true."
[[noreturn]] void wrong_type(const Node& node, const std::string& expected, const ExpressionValue& found) {
  throw ExpressionError("expected " + expected + ", but " +
                            (node.kind == Node::Kind::value ? "found " : "\"" + shown(node) + "\" is ") +
                            describe(found),
                        node.offset, node.length);
}

/// Exact numbers may be long, but not so long that working with them never ends.
Rational short_enough(const Rational& value, const Node& node) {
  if (std::max(value.numerator().bits(), value.denominator().bits()) <= most_digits) return value;
  throw ExpressionError(
      "this value has more than " + std::to_string(most_digits) + " binary digits, which no factor of a gradient needs",
      node.offset, node.length);
}

bool compare(const std::string& op, const Rational& a, const Rational& b) {
  const bool or_equal = op.size() > 1;
  if (op[0] == '<') return or_equal ? a <= b : a < b;
  return or_equal ? a >= b : a > b;
}

}  // namespace

std::string describe(const ExpressionValue& value) {
  if (const auto* number = std::get_if<Rational>(&value)) return "the number " + number->to_string();
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "the truth value true" : "the truth value false";
  return "the string '" + std::get<std::string>(value) + "'";
}

Rational number_of(const ExpressionValue& value, const Node& node) {
  if (const auto* number = std::get_if<Rational>(&value)) return *number;
  wrong_type(node, "a number", value);
}

bool truth_of(const ExpressionValue& value, const Node& node) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth;
  wrong_type(node, "a truth value", value);
}

ExpressionValue combine(const Node& node, const ExpressionValue& left, const ExpressionValue& right) {
  // No two operators but those that compare begin alike, and a search evaluates thousands of expressions.
  const std::string& op = node.text;
  if (op[0] == '=' || op[0] == '!') {
    if (left.index() != right.index()) {
      throw ExpressionError(
          "\"" + op + "\" compares values of one kind, but found " + describe(left) + " and " + describe(right),
          node.offset, node.length);
    }
    return (left == right) == (op[0] == '=');
  }
  const Rational a = number_of(left, *node.children[0]);
  const Rational b = number_of(right, *node.children[1]);
  if (op[0] == '+') return short_enough(a + b, node);
  if (op[0] == '-') return short_enough(a - b, node);
  if (op[0] == '*') return short_enough(a * b, node);
  if (op[0] == '/') {
    if (b.is_zero()) {
      throw ExpressionError("division by zero: \"" + shown(*node.children[1]) + "\" is 0 here", node.offset,
                            node.length);
    }
    return short_enough(a / b, node);
  }
  return compare(op, a, b);
}

Rational call(const Node& node, const std::vector<Rational>& arguments) {
  if (node.text == "floor") return arguments[0].floor();
  if (node.text == "ceil") return -(-arguments[0]).floor();
  if (node.text == "min") return *std::min_element(arguments.begin(), arguments.end());
  if (node.text == "max") return *std::max_element(arguments.begin(), arguments.end());
  Rational multiple = 1;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Node& argument = *node.children[i];
    if (!arguments[i].is_integer() || arguments[i] <= 0) {
      throw ExpressionError(
          "\"lcm\" takes positive whole numbers, but \"" + shown(argument) + "\" is " + arguments[i].to_string(),
          argument.offset, argument.length);
    }
    multiple = short_enough(Rational::lcm(multiple, arguments[i]), node);
  }
  return multiple;
}

}  // namespace lockstep::expression
