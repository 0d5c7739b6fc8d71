// SPDX-License-Identifier: Apache-2.0
//
// Interval arithmetic on the expressions of the scenario language.
#include "src/symbolic/parametric/size_ranges.h"

#include <algorithm>
#include <memory>
#include <variant>

#include "src/base/budget.h"
#include "src/expression/digits.h"
#include "src/expression/node.h"
#include "src/symbolic/parametric/normal_form.h"

namespace lockstep::parametric {

namespace {

using Node = Expression::Node;
using Edge = std::optional<Rational>;

SizeRange plus(const SizeRange& a, const SizeRange& b) {
  const auto sum = [](const Edge& x, const Edge& y) { return x && y ? Edge(*x + *y) : std::nullopt; };
  return SizeRange{sum(a.low, b.low), sum(a.high, b.high), a.above_low || b.above_low, a.below_high || b.below_high};
}

SizeRange negated(const SizeRange& a) {
  const auto minus = [](const Edge& x) { return x ? Edge(-*x) : std::nullopt; };
  return {minus(a.high), minus(a.low), a.below_high, a.above_low};
}

bool is_positive(const SizeRange& a) { return a.low && (Rational(0) < *a.low || (a.low->is_zero() && a.above_low)); }
bool is_not_negative(const SizeRange& a) { return a.low && !(*a.low < Rational(0)); }

/// A range that has the numbers of both.
SizeRange hull(const SizeRange& a, const SizeRange& b) {
  SizeRange all;
  if (a.low && b.low) all.low = std::min(*a.low, *b.low);
  if (a.high && b.high) all.high = std::max(*a.high, *b.high);
  return all;
}

SizeRange times(const SizeRange& a, const SizeRange& b) {
  // Whatever the other one is, and without end, too.
  const auto is_zero = [](const SizeRange& one) { return one.is_one() && one.low->is_zero(); };
  if (is_zero(a) || is_zero(b)) return SizeRange::exactly(Rational(0));
  if (!is_not_negative(a)) {
    if (is_not_negative(negated(a))) return negated(times(negated(a), b));
    const SizeRange above{Rational(0), a.high, false, a.below_high}, below{a.low, Rational(0), a.above_low, false};
    return hull(times(above, b), negated(times(negated(below), b)));
  }
  if (!is_not_negative(b)) return times(b, a);
  SizeRange product{*a.low * *b.low, std::nullopt, a.above_low || b.above_low, a.below_high || b.below_high};
  // 0 is among them where it is among either.
  if (product.low->is_zero()) product.above_low = is_positive(a) && is_positive(b);
  if (a.high && b.high) product.high = *a.high * *b.high;
  // So is it where either has nothing else.
  if (product.high && product.high->is_zero()) product.below_high = false;
  return product;
}

std::optional<SizeRange> inverse(const SizeRange& a) {
  if (is_positive(negated(a))) return negated(*inverse(negated(a)));
  if (!is_positive(a)) return std::nullopt;
  SizeRange result{Rational(0), std::nullopt, true, a.above_low};
  if (a.high) result.low = Rational(1) / *a.high, result.above_low = a.below_high;
  if (!a.low->is_zero()) result.high = Rational(1) / *a.low;
  return result;
}

SizeRange floored(const SizeRange& a) {
  SizeRange result;
  if (a.low) result.low = a.low->floor();
  if (a.high) result.high = a.high->floor();
  if (a.high && a.below_high && a.high->is_integer()) result.high = *a.high - Rational(1);
  return result;
}

/// Of the smaller one of two numbers; the bounds count as among them.
SizeRange least(const SizeRange& a, const SizeRange& b) {
  SizeRange result;
  if (a.low && b.low) result.low = std::min(*a.low, *b.low);
  result.high = !a.high ? b.high : !b.high ? a.high : Edge(std::min(*a.high, *b.high));
  return result;
}

/// Products of products have twice as many digits each time. What is longer than an expression may be is rounded away
/// from the numbers of the range, to where it is seen that they are too long, or none is known.
SizeRange short_enough(SizeRange range) {
  const auto is_long = [](const Edge& edge) {
    return edge && std::max(edge->numerator().bits(), edge->denominator().bits()) > expression::most_digits;
  };
  // Of an upper edge; a lower one is the upper one of the negative range.
  const auto rounded = [&](Edge edge, bool& excluded) -> Edge {
    if (!is_long(edge)) return edge;
    excluded = excluded || !edge->is_integer();
    edge = -(-*edge).floor();
    if (!is_long(edge)) return edge;
    return *edge < Rational(0) ? Edge(-(largest_number() + Rational(1))) : std::nullopt;
  };
  range.high = rounded(range.high, range.below_high);
  if (const Edge low = rounded(range.low ? Edge(-*range.low) : range.low, range.above_low)) {
    range.low = -*low;
  } else {
    range.low.reset();
  }
  return range;
}

class RangeEvaluator {
 public:
  explicit RangeEvaluator(const RangeOf& range_of, bool normalizes = true)
      : range_of_(range_of), normalizes_(normalizes) {}

  std::optional<bool> truth(const Node& node) {
    return truths_(node, [&] { return truth_anew(node); });
  }
  std::optional<SizeRange> number(const Node& node) {
    return numbers_(node, [&] {
      const std::optional<SizeRange> range = number_anew(node);
      return range ? std::optional(short_enough(*range)) : std::nullopt;
    });
  }

 private:
  std::optional<bool> truth_anew(const Node& node) {
    using Kind = Node::Kind;
    if (node.kind == Kind::value) {
      const bool* value = std::get_if<bool>(&node.value);
      return value != nullptr ? std::optional(*value) : std::nullopt;
    }
    if (node.kind == Kind::name) {
      const std::optional<SizeRange> range = range_of_(node.text);
      return range && range->is_one() ? std::optional(!range->low->is_zero()) : std::nullopt;
    }
    if (node.kind == Kind::logical_not) {
      const std::optional<bool> inner = truth(*node.children[0]);
      return inner ? std::optional(!*inner) : std::nullopt;
    }
    if (node.kind != Kind::binary) return std::nullopt;
    if (node.text == "and" || node.text == "or") {
      const bool decides = node.text == "or";
      const std::optional<bool> a = truth(*node.children[0]), b = truth(*node.children[1]);
      if (a && *a == decides) return decides;
      // The first one is asked first, and where it has no value neither has the whole.
      if (b && *b == decides && (a || has_values(*node.children[0]))) return decides;
      return a && b ? std::optional(!decides) : std::nullopt;
    }
    if (const std::optional<bool> holds = compared(node)) return holds;
    const auto is_counted = [&](const std::string& name) {
      const std::optional<SizeRange> range = range_of_(name);
      return range && is_positive(*range);
    };
    // What is seen of it there is kept no longer than its nodes.
    const auto normal = normalizes_ ? normal_form(node, is_counted) : nullptr;
    return normal ? RangeEvaluator(range_of_, false).truth(*normal) : std::nullopt;
  }

  /// Whether nothing in it is divided by 0, and lcm() is asked of what it takes, at all sizes.
  bool has_values(const Node& node) {
    return with_values_(node, [&] {
      const bool divides = node.kind == Node::Kind::binary && node.text == "/";
      const bool multiple = node.kind == Node::Kind::call && node.text == "lcm";
      if ((divides || multiple) && !number(node)) return false;
      return std::all_of(node.children.begin(), node.children.end(),
                         [&](const auto& child) { return has_values(*child); });
    });
  }

  std::optional<SizeRange> number_anew(const Node& node) {
    using Kind = Node::Kind;
    constexpr std::int64_t units = 6;
    Budget::spend(units);
    switch (node.kind) {
      case Kind::value:
        if (const auto* value = std::get_if<Rational>(&node.value)) return SizeRange::exactly(*value);
        return std::nullopt;
      case Kind::name:
        return range_of_(node.text);
      case Kind::negate: {
        const auto inner = number(*node.children[0]);
        return inner ? std::optional(negated(*inner)) : std::nullopt;
      }
      case Kind::call:
        return call(node);
      case Kind::binary:
        break;
      default:
        return std::nullopt;
    }
    const auto a = number(*node.children[0]), b = number(*node.children[1]);
    if (!a || !b) return std::nullopt;
    if (node.text == "+") return plus(*a, *b);
    if (node.text == "-") return plus(*a, negated(*b));
    if (node.text == "*") return times(*a, *b);
    if (node.text != "/") return std::nullopt;
    const auto below = inverse(*b);
    return below ? std::optional(times(*a, *below)) : std::nullopt;
  }

  std::optional<bool> compared(const Node& node) {
    const auto text = [](const Node& side) { return std::get_if<std::string>(&side.value); };
    const std::string &op = node.text, *left = text(*node.children[0]), *right = text(*node.children[1]);
    if (left != nullptr && right != nullptr) return (*left == *right) == (op == "==");
    const std::optional<SizeRange> a = number(*node.children[0]), b = number(*node.children[1]);
    if (!a || !b) return std::nullopt;
    if (op == "<") return below(*a, *b);
    if (op == ">") return below(*b, *a);
    if (op == ">=" || op == "<=") {
      const std::optional<bool> other = op == ">=" ? below(*a, *b) : below(*b, *a);
      return other ? std::optional(!*other) : std::nullopt;
    }
    if (op != "==" && op != "!=") return std::nullopt;
    const bool apart = below(*a, *b).value_or(false) || below(*b, *a).value_or(false);
    if (apart) return op == "!=";
    return a->is_one() && b->is_one() ? std::optional(op == "==") : std::nullopt;
  }

  /// Whether every number of the one is below every number of the other, or none is.
  static std::optional<bool> below(const SizeRange& a, const SizeRange& b) {
    if (a.high && b.low && (*a.high < *b.low || (*a.high == *b.low && (a.below_high || b.above_low)))) return true;
    if (a.low && b.high && !(*a.low < *b.high)) return false;
    return std::nullopt;
  }

  /// Whether it is a whole number at all sizes.
  bool is_whole(const Node& node) {
    return wholes_(node, [&] {
      const auto all = [&] {
        return std::all_of(node.children.begin(), node.children.end(),
                           [&](const auto& child) { return is_whole(*child); });
      };
      const auto* value = std::get_if<Rational>(&node.value);
      if (node.kind == Node::Kind::value) return value != nullptr && value->is_integer();
      if (node.kind == Node::Kind::call) return node.text == "floor" || node.text == "ceil" || all();
      if (node.kind == Node::Kind::binary) return (node.text == "+" || node.text == "-" || node.text == "*") && all();
      return node.kind == Node::Kind::name || (node.kind == Node::Kind::negate && all());
    });
  }

  /// A least common multiple of positive whole numbers is a multiple of each, and divides their product.
  std::optional<SizeRange> common_multiple(const Node& node) {
    SizeRange result = SizeRange::exactly(Rational(1));
    Rational product(1);
    bool ends = true, known = true;
    for (const auto& child : node.children) {
      const auto argument = number(*child);
      // Of anything else it is a mistake of the file at the sizes where it is no whole number.
      const bool is_one = argument && argument->is_one() && argument->low->is_integer();
      if (!argument || !is_positive(*argument) || !(is_one || is_whole(*child))) return std::nullopt;
      result.low = std::max(*result.low, *argument->low);
      ends = ends && argument->high;
      known = known && argument->is_one();
      if (ends) product *= *argument->high;
    }
    result.high = ends ? std::optional(product) : std::nullopt;
    if (!known) return result;
    Node plain = node;
    for (auto& child : plain.children) {
      const auto value = std::make_shared<Node>();
      value->value = *number(*child)->low;
      child = value;
    }
    try {
      return SizeRange::exactly(std::get<Rational>(expression::evaluate(plain, Environment{})));
    } catch (const ExpressionError&) {
      return std::nullopt;  // of something that is no whole number
    }
  }

  std::optional<SizeRange> call(const Node& node) {
    if (node.text == "lcm") return common_multiple(node);
    std::optional<SizeRange> result;
    for (const auto& child : node.children) {
      const auto argument = number(*child);
      if (!argument) return std::nullopt;
      if (node.text == "floor") return floored(*argument);
      if (node.text == "ceil") return negated(floored(negated(*argument)));
      if (node.text != "min" && node.text != "max") return std::nullopt;
      if (!result) {
        result = argument;
        continue;
      }
      result = node.text == "min" ? least(*result, *argument) : negated(least(negated(*result), negated(*argument)));
    }
    return result;
  }

  const RangeOf& range_of_;
  bool normalizes_;
  expression::OncePerNode<bool> wholes_, with_values_;
  expression::OncePerNode<std::optional<bool>> truths_;
  expression::OncePerNode<std::optional<SizeRange>> numbers_;
};

}  // namespace

const Rational& largest_number() {
  static const Rational largest = made_once([] {
    Rational power(2);
    for (int digits = 1; digits < expression::most_digits; digits *= 2) power *= power;
    return power;
  });
  return largest;
}

std::optional<bool> truth_in_ranges(const Expression::Node& condition, const RangeOf& range_of) {
  return RangeEvaluator(range_of).truth(condition);
}

std::optional<SizeRange> number_in_ranges(const Expression::Node& number, const RangeOf& range_of) {
  return RangeEvaluator(range_of).number(number);
}

}  // namespace lockstep::parametric
