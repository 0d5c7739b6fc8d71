// SPDX-License-Identifier: Apache-2.0
//
// Ranges of sizes take each name as one of its own: "world / dp" could be any number. Worked out it is "tp * pp", and
// where that changes is seen.
#include <algorithm>
#include <utility>

#include "src/expression/node.h"
#include "src/symbolic/parametric/evaluator.h"

namespace lockstep::parametric {

namespace {

using Node = Expression::Node;
using NodePointer = std::shared_ptr<const Node>;

using expression::binary_node;
using expression::name_node;
using expression::value_node;

bool is_size(const Variable& variable) {
  return variable.kind == Variable::Kind::size || variable.kind == Variable::Kind::micro_batches;
}

/// Null where it is no sum of few products of sizes.
NodePointer node_of(const Polynomials& polynomials, int polynomial) {
  constexpr int most_factors = 32;
  int factors = 0;
  NodePointer sum;
  for (const auto& [monomial, coefficient] : polynomials.terms(polynomial)) {
    NodePointer term = value_node(coefficient);
    for (const auto& [number, exponent] : monomial) {
      const Variable& variable = polynomials.variable_at(number);
      factors += std::abs(exponent);
      if (!is_size(variable) || factors > most_factors) return nullptr;
      for (int i = 0; i < std::abs(exponent); ++i)
        term = binary_node(exponent > 0 ? "*" : "/", term, name_node(name_of(variable)));
    }
    sum = sum ? binary_node("+", sum, term) : term;
  }
  return sum ? sum : value_node(Rational(0));
}

/// True for as long as it is there, whatever is thrown.
class ScopedFlag {
 public:
  explicit ScopedFlag(bool& flag) : flag_(flag) { flag_ = true; }
  ~ScopedFlag() { flag_ = false; }
  ScopedFlag(const ScopedFlag&) = delete;
  ScopedFlag& operator=(const ScopedFlag&) = delete;

 private:
  bool& flag_;
};

/// Whether it has a product of which a factor is a sum.
bool multiplies(const Node& node) {
  const auto has_sum = [](const auto& self, const Node& part) -> bool {
    const bool sum = part.kind == Node::Kind::binary && (part.text == "+" || part.text == "-");
    return sum || std::any_of(part.children.begin(), part.children.end(),
                              [&](const auto& child) { return self(self, *child); });
  };
  if (node.kind == Node::Kind::binary && node.text == "*") return has_sum(has_sum, node);
  return std::any_of(node.children.begin(), node.children.end(), [](const auto& child) { return multiplies(*child); });
}

/// Whether it asks nothing but whether a number is the same at all sizes.
bool is_of_one_number(const Node& condition) {
  return condition.text == "==" && condition.children[0] == condition.children[1];
}

}  // namespace

std::optional<bool> Evaluator::truth(const Node& condition, const EvaluationContext& context) {
  const auto range = [&](const std::string& name) { return range_of(name, context); };
  if (const auto holds = truth_in_ranges(condition, range)) return holds;
  const auto simpler = simpler_than(condition, context);
  return simpler ? truth_in_ranges(*simpler, range) : std::nullopt;
}

std::optional<int> Evaluator::multiple_of_all(const std::vector<int>& arguments, const EvaluationContext& context) {
  Polynomials& polynomials = world_.polynomials();
  // For whole values of its variables it is a whole number.
  const auto is_whole = [&](int polynomial) {
    const auto& terms = polynomials.terms(polynomial);
    return std::all_of(terms.begin(), terms.end(), [](const auto& term) {
      return term.second.is_integer() &&
             std::all_of(term.first.begin(), term.first.end(), [](const auto& power) { return power.second > 0; });
    });
  };
  const auto is_counted = [&](int polynomial) {
    const Signs signs = this->signs(polynomial, context);
    return is_whole(polynomial) && signs.positive && !signs.zero && !signs.negative;
  };
  if (!std::all_of(arguments.begin(), arguments.end(), is_counted)) return std::nullopt;
  const auto divides = [&](int one, int other) {
    const std::optional<int> inverse = polynomials.inverse(one);
    return one == other || (inverse && is_whole(polynomials.multiply(other, *inverse)));
  };
  for (const int argument : arguments) {
    if (std::all_of(arguments.begin(), arguments.end(), [&](int other) { return divides(other, argument); }))
      return argument;
  }
  return std::nullopt;
}

NodePointer Evaluator::worked_out(const NodePointer& node, const EvaluationContext& context) {
  using Kind = Node::Kind;
  const bool product = node->text == "*" || node->text == "/", sum = node->text == "+" || node->text == "-";
  const bool arithmetic = node->kind == Kind::binary && (product || sum);
  if (arithmetic || node->kind == Kind::name || node->kind == Kind::call || node->kind == Kind::negate) {
    try {
      const Value value = evaluate(*node, context);
      // Factors show where a product is 0, and ranges of their own are narrower than those of their terms.
      const bool has_factors = !value.truth && node->kind != Kind::call &&
                               world_.polynomials().terms(value.value).size() > 1 && multiplies(*node);
      const NodePointer polynomial = value.truth || has_factors ? nullptr : node_of(world_.polynomials(), value.value);
      if (polynomial) return polynomial;
    } catch (const OutOfReach&) {
      // Its parts may be known all the same.
    }
  }
  Node copy = *node;
  std::vector<NodePointer> children;
  for (const NodePointer& child : node->children) children.push_back(worked_out(child, context));
  expression::set_children(copy, std::move(children));
  return std::make_shared<const Node>(std::move(copy));
}

void Evaluator::count_spoken_of(const Node& node, const EvaluationContext& context, std::set<std::string>& names,
                                int& calls) {
  if (node.kind == Node::Kind::call) ++calls;
  for (const NodePointer& child : node.children) count_spoken_of(*child, context, names, calls);
  if (node.kind != Node::Kind::name) return;
  try {
    const Value value = named(node, context);
    if (value.truth) return;
    for (const auto& [monomial, coefficient] : world_.polynomials().terms(value.value)) {
      for (const auto& [number, exponent] : monomial) names.insert(name_of(world_.polynomials().variable_at(number)));
    }
  } catch (const OutOfReach&) {
    names.insert(node.text);
  }
}

NodePointer Evaluator::simpler_than(const Node& node, const EvaluationContext& context) {
  // What is walked place by place has few; no value is kept of the nodes that are made here and go again.
  if (simplifying_ || node.places > expression::few_places) return nullptr;
  const ScopedFlag simplifying(simplifying_);
  const NodePointer simpler = worked_out(std::make_shared<const Node>(node), context);
  std::set<std::string> names, fewer_names;
  int calls = 0, fewer_calls = 0;
  count_spoken_of(node, context, names, calls);
  count_spoken_of(*simpler, context, fewer_names, fewer_calls);
  const bool no_more = fewer_names.size() <= names.size() && fewer_calls <= calls;
  const bool fewer = fewer_names.size() < names.size() || fewer_calls < calls;
  return no_more && fewer ? simpler : nullptr;
}

DependsOnSizes::Conditions Evaluator::conditions_with(const Node& comparison, DependsOnSizes::Conditions of_sides,
                                                      const EvaluationContext& context) {
  // Which of two numbers is the larger one is asked first, and whether a number is the same at all sizes last.
  const auto last =
      std::find_if(of_sides.begin(), of_sides.end(), [](const auto& one) { return is_of_one_number(*one); });
  DependsOnSizes::Conditions all(of_sides.begin(), last);
  if (const NodePointer simpler = simpler_than(comparison, context)) all.push_back(simpler);
  all.push_back(std::make_shared<const Node>(comparison));
  all.insert(all.end(), last, of_sides.end());
  return all;
}

}  // namespace lockstep::parametric
