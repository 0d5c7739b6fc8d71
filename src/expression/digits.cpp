// SPDX-License-Identifier: Apache-2.0
#include "src/expression/digits.h"

#include <algorithm>
#include <variant>

namespace lockstep::expression {

namespace {

/// More are as bad, and sums of them stay numbers.
constexpr std::int64_t endless = std::int64_t{1} << 40;
/// Of a number of tokens, or of a sum of such over all ranks and micro-batches.
constexpr Digits digits_of_tokens{128, 0};

Digits limited(std::int64_t above, std::int64_t below) { return {std::min(above, endless), std::min(below, endless)}; }

}  // namespace

Digits digits_of(const Rational& number) { return {number.numerator().bits(), number.denominator().bits()}; }

Digits most_of(const Digits& a, const Digits& b) { return {std::max(a.above, b.above), std::max(a.below, b.below)}; }

Digits DigitsOfNodes::operator()(const Node& node) {
  return once_(node, [&] { return anew(node); });
}

Digits DigitsOfNodes::anew(const Node& node) {
  using Kind = Node::Kind;
  switch (node.kind) {
    case Kind::value: {
      const auto* number = std::get_if<Rational>(&node.value);
      return number != nullptr ? digits_of(*number) : Digits{};
    }
    case Kind::name:
      return of_name_(node.text);
    case Kind::rank_axis:
    case Kind::micro_batch:
    case Kind::step:
    case Kind::end:
      return digits_of_a_size;
    case Kind::tokens:
    case Kind::sum:
      return digits_of_tokens;
    case Kind::negate:
    case Kind::logical_not:
      return (*this)(*node.children[0]);
    case Kind::call: {
      Digits result;
      for (const NodePointer& child : node.children) {
        const Digits one = (*this)(*child);
        result = node.text == "lcm" ? limited(result.above + one.above, 0) : most_of(result, one);
      }
      if (node.text == "floor" || node.text == "ceil") return limited(result.above + 1, 0);
      return result;
    }
    case Kind::binary:
      break;
  }
  const Digits a = (*this)(*node.children[0]), b = (*this)(*node.children[1]);
  if (node.text == "*") return limited(a.above + b.above, a.below + b.below);
  if (node.text == "/") return limited(a.above + b.below, a.below + b.above);
  if (node.text == "+" || node.text == "-")
    return limited(std::max(a.above + b.below, b.above + a.below) + 1, a.below + b.below);
  return {};  // a condition
}

bool limits_digits(const Node& node) {
  if (node.kind == Node::Kind::call) return node.text == "lcm";
  return node.kind == Node::Kind::binary &&
         (node.text == "+" || node.text == "-" || node.text == "*" || node.text == "/");
}

bool is_plainly_short(const Node& root) {
  // What all leaves and operations have together.
  constexpr std::uint32_t few_places = 60;
  return root.places <= few_places && !any_node(root, [](const Node& node) {
           const Digits digits = node.kind == Node::Kind::value ? DigitsOfNodes(nullptr)(node) : Digits{};
           return digits.above + digits.below > digits_of_tokens.above;
         });
}

}  // namespace lockstep::expression
