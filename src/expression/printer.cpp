// SPDX-License-Identifier: Apache-2.0
#include "src/expression/node.h"

namespace lockstep::expression {
namespace {

/// How strongly an operator binds; what stands inside must bind at least as strongly.
enum Binding { disjunction = 1, conjunction, negation, comparison, sum, product, unary, primary };

Binding binding(const Node& node) {
  switch (node.kind) {
    case Node::Kind::negate:
      return unary;
    case Node::Kind::logical_not:
      return negation;
    case Node::Kind::binary:
      if (node.text == "or") return disjunction;
      if (node.text == "and") return conjunction;
      if (node.text == "+" || node.text == "-") return sum;
      if (node.text == "*" || node.text == "/") return product;
      return comparison;
    case Node::Kind::value:
      if (const auto* number = std::get_if<Rational>(&node.value)) return number->is_integer() ? primary : product;
      return primary;
    default:
      return primary;
  }
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("''") : std::string(1, c);
  return result + "'";
}

std::string value(const ExpressionValue& content) {
  if (const auto* number = std::get_if<Rational>(&content)) return number->to_string();
  if (const auto* truth = std::get_if<bool>(&content)) return *truth ? "true" : "false";
  return quoted(std::get<std::string>(content));
}

std::string inside(const Node& child, Binding at_least) {
  const std::string text = print(child);
  return binding(child) < at_least ? "(" + text + ")" : text;
}

std::string tokens(const std::string& use) { return use == "main" ? "tokens" : "tokens." + use; }

}  // namespace

std::string print(const Node& node) {
  const auto child = [&node](std::size_t i) -> const Node& { return *node.children[i]; };
  switch (node.kind) {
    case Node::Kind::value:
      return value(node.value);
    case Node::Kind::name:
    case Node::Kind::end:
      return node.text;
    case Node::Kind::rank_axis:
      return "rank." + std::string(name_of(node.axis));
    case Node::Kind::micro_batch:
      return "micro_batch";
    case Node::Kind::step:
      return "step";
    case Node::Kind::tokens:
      return tokens(node.text);
    case Node::Kind::sum: {
      std::string text = "sum(" + tokens(node.text);
      for (const Axis axis : node.axes) text += ", " + std::string(name_of(axis));
      return text + (node.all_micro_batches ? ", micro_batch)" : ")");
    }
    case Node::Kind::negate:
      return "-" + inside(child(0), unary);
    case Node::Kind::logical_not:
      return "not " + inside(child(0), negation);
    case Node::Kind::binary: {
      const Binding own = binding(node);
      // Operators group to the left; comparisons do not group at all.
      const Binding left = own == comparison ? sum : own;
      const Binding right = static_cast<Binding>(own + 1);
      return inside(child(0), left) + " " + node.text + " " + inside(child(1), right);
    }
    case Node::Kind::call: {
      std::string text = node.text + "(";
      for (std::size_t i = 0; i < node.children.size(); ++i) text += (i ? ", " : "") + print(child(i));
      return text + ")";
    }
  }
  return "";
}

}  // namespace lockstep::expression
