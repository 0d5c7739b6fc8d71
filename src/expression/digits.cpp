// SPDX-License-Identifier: Apache-2.0
#include "src/expression/digits.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <variant>

namespace lockstep::expression {

namespace {

/// More are as bad, and sums of them stay numbers.
constexpr std::int64_t endless = std::int64_t{1} << 40;
/// Of a number of tokens, or of a sum of such over all ranks and micro-batches.
constexpr Digits digits_of_tokens{128, 0};

constexpr std::int64_t largest_divisor = std::int64_t{1} << 62;

Digits limited(std::int64_t above, std::int64_t below) { return {std::min(above, endless), std::min(below, endless)}; }

/// log2, rounded up, of a number of 1 or more.
std::int64_t log2_of(std::int64_t number) { return std::bit_width(static_cast<std::uint64_t>(number) - 1); }

Digits over(std::int64_t above, std::int64_t divisor) { return {std::min(above, endless), log2_of(divisor), divisor}; }

std::int64_t multiplied(std::int64_t a, std::int64_t b) {
  return a > 0 && b > 0 && a <= largest_divisor / b ? a * b : 0;
}

/// What both are whole numbers by; 0 where that is not known.
std::int64_t common_divisor(const Digits& a, const Digits& b) {
  if (a.divisor == 0 || b.divisor == 0) return 0;
  return multiplied(a.divisor / std::gcd(a.divisor, b.divisor), b.divisor);
}

/// The larger one above the line, where both have that divisor.
std::int64_t most_above(const Digits& a, const Digits& b, std::int64_t divisor) {
  return std::max(a.above + log2_of(divisor / a.divisor), b.above + log2_of(divisor / b.divisor));
}

/// One by a number of the tree, above and below the line.
std::optional<std::pair<std::int64_t, std::int64_t>> constant(const Node& node) {
  const auto* number = node.kind == Node::Kind::value ? std::get_if<Rational>(&node.value) : nullptr;
  if (number == nullptr || number->is_zero()) return std::nullopt;
  const auto above = number->numerator().to_int64(), below = number->denominator().to_int64();
  constexpr std::int64_t most = largest_divisor;
  if (!above || !below || *above > most || *above < -most || *below > most) return std::nullopt;
  return std::pair{*above < 0 ? -*above : *above, *below};
}

}  // namespace

Digits digits_of(const Rational& number) {
  const auto below = number.denominator().to_int64();
  const std::int64_t divisor = below && *below <= largest_divisor ? *below : 0;
  return {number.numerator().bits(), number.denominator().bits(), divisor};
}

Digits most_of(const Digits& a, const Digits& b) {
  if (const std::int64_t divisor = common_divisor(a, b)) return over(most_above(a, b, divisor), divisor);
  return {std::max(a.above, b.above), std::max(a.below, b.below), 0};
}

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
  if (node.text == "*") {
    if (const std::int64_t divisor = multiplied(a.divisor, b.divisor)) return over(a.above + b.above, divisor);
    return limited(a.above + b.above, a.below + b.below);
  }
  if (node.text == "/") {
    const auto by = constant(*node.children[1]);
    if (const std::int64_t divisor = by ? multiplied(a.divisor, by->first) : 0)
      return over(a.above + log2_of(by->second), divisor);
    return limited(a.above + b.below, a.below + b.above);
  }
  if (const std::int64_t divisor = common_divisor(a, b); divisor > 0 && (node.text == "+" || node.text == "-"))
    return over(most_above(a, b, divisor) + 1, divisor);
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
