// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/normal_form.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>

#include "src/base/budget.h"

namespace lockstep::parametric {

namespace {

using Node = Expression::Node;
using expression::binary_node;
using expression::NodePointer;
using expression::value_node;

using Powers = std::map<std::string, int>;  // by name; no exponent is 0
using SumOfProducts = std::map<Powers, Rational>;
using IsPositive = std::function<bool(const std::string&)>;

constexpr std::size_t most_products = 64;
constexpr int highest_power = 32;

void add(SumOfProducts& sum, const Powers& powers, const Rational& coefficient) {
  Rational& own = sum[powers];
  own += coefficient;
  if (own.is_zero()) sum.erase(powers);
}

/// `sign` is 1 or -1, of the exponents in `more`.
Powers times(Powers powers, const Powers& more, int sign) {
  for (const auto& [name, exponent] : more) {
    int& own = powers[name];
    own += sign * exponent;
    if (own == 0) powers.erase(name);
  }
  return powers;
}

std::optional<SumOfProducts> sum_of(const Node& node, const IsPositive& is_positive) {
  using Kind = Node::Kind;
  Budget::spend(2);
  SumOfProducts result;
  if (node.kind == Kind::value) {
    const auto* number = std::get_if<Rational>(&node.value);
    if (number == nullptr) return std::nullopt;
    add(result, {}, *number);
    return result;
  }
  if (node.kind == Kind::name) {
    if (!is_positive(node.text)) return std::nullopt;
    return SumOfProducts{{{{node.text, 1}}, Rational(1)}};
  }
  if (node.kind == Kind::negate) {
    const auto inner = sum_of(*node.children[0], is_positive);
    if (!inner) return std::nullopt;
    for (const auto& [powers, coefficient] : *inner) add(result, powers, -coefficient);
    return result;
  }
  if (node.kind != Kind::binary) return std::nullopt;
  const auto left = sum_of(*node.children[0], is_positive), right = sum_of(*node.children[1], is_positive);
  if (!left || !right) return std::nullopt;
  if (node.text == "+" || node.text == "-") {
    result = *left;
    for (const auto& [powers, coefficient] : *right) add(result, powers, node.text == "+" ? coefficient : -coefficient);
    return result.size() <= most_products ? std::optional(result) : std::nullopt;
  }
  const bool divides = node.text == "/";
  if ((node.text != "*" && !divides) || (divides && right->size() != 1) || left->size() * right->size() > most_products)
    return std::nullopt;
  for (const auto& [powers, coefficient] : *left) {
    for (const auto& [more, other] : *right)
      add(result, times(powers, more, divides ? -1 : 1), divides ? coefficient / other : coefficient * other);
  }
  return result;
}

/// Divided by a positive number, so that all exponents are as small as whole numbers can be.
SumOfProducts without_common_powers(const SumOfProducts& sum, const std::set<std::string>& names) {
  Powers common;
  for (const std::string& name : names) {
    int least = highest_power;
    for (const auto& [powers, coefficient] : sum) {
      const auto own = powers.find(name);
      least = std::min(least, own == powers.end() ? 0 : own->second);
    }
    if (least != 0) common[name] = least;
  }
  SumOfProducts result;
  for (const auto& [powers, coefficient] : sum) add(result, times(powers, common, -1), coefficient);
  return result;
}

NodePointer node_of_one_name(const SumOfProducts& sum, const std::string& name) {
  std::map<int, Rational> coefficients;
  for (const auto& [powers, coefficient] : sum) coefficients[powers.empty() ? 0 : powers.at(name)] = coefficient;
  const int highest = coefficients.rbegin()->first;
  NodePointer node = value_node(coefficients.at(highest));
  for (int exponent = highest - 1; exponent >= 0; --exponent) {
    node = binary_node("*", expression::name_node(name), node);
    if (const auto own = coefficients.find(exponent); own != coefficients.end())
      node = binary_node("+", value_node(own->second), node);
  }
  return node;
}

/// The products of one sign, without it.
NodePointer node_of_sign(const SumOfProducts& sum, bool negative) {
  NodePointer all;
  for (const auto& [powers, coefficient] : sum) {
    if (negative != (coefficient < Rational(0))) continue;
    NodePointer product = value_node(negative ? -coefficient : coefficient);
    for (const auto& [name, exponent] : powers) {
      for (int i = 0; i < exponent; ++i) product = binary_node("*", product, expression::name_node(name));
    }
    all = all ? binary_node("+", all, product) : product;
  }
  return all ? all : value_node(Rational(0));
}

/// Whether a name stands there twice: else nothing is the same in two places.
bool repeats_a_name(const Node& node, std::set<std::string>& seen) {
  if (node.kind == Node::Kind::name) return !seen.insert(node.text).second;
  return std::any_of(node.children.begin(), node.children.end(),
                     [&](const auto& child) { return repeats_a_name(*child, seen); });
}

}  // namespace

NodePointer normal_form(const Node& comparison, const IsPositive& is_positive) {
  static const std::set<std::string> signs =
      made_once([] { return std::set<std::string>{"<", "<=", ">", ">=", "==", "!="}; });
  if (comparison.kind != Node::Kind::binary || !signs.contains(comparison.text)) return nullptr;
  std::set<std::string> seen;
  if (comparison.places > expression::few_places || !repeats_a_name(comparison, seen)) return nullptr;
  const auto left = sum_of(*comparison.children[0], is_positive), right = sum_of(*comparison.children[1], is_positive);
  if (!left || !right) return nullptr;
  SumOfProducts difference = *left;
  for (const auto& [powers, coefficient] : *right) add(difference, powers, -coefficient);
  std::set<std::string> names;
  for (const auto& [powers, coefficient] : difference) {
    for (const auto& [name, exponent] : powers) names.insert(name);
  }
  difference = without_common_powers(difference, names);
  names.clear();
  for (const auto& [powers, coefficient] : difference) {
    for (const auto& [name, exponent] : powers) {
      names.insert(name);
      if (exponent > highest_power) return nullptr;
    }
  }
  const char* sign = signs.find(comparison.text)->c_str();
  if (names.size() == 1)
    return binary_node(sign, node_of_one_name(difference, *names.begin()), value_node(Rational(0)));
  return binary_node(sign, node_of_sign(difference, false), node_of_sign(difference, true));
}

}  // namespace lockstep::parametric
