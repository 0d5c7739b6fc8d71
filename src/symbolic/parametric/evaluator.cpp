// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/evaluator.h"

#include <algorithm>
#include <utility>

#include "src/base/budget.h"
#include "src/expression/node.h"
#include "src/mesh/instances.h"

namespace lockstep::parametric {

namespace {

/// The half of a sentence on what a comparison of the polynomial with 0 hangs.
std::string depends_on_what(const World& world, const Polynomials& polynomials, int polynomial) {
  bool has_tokens = false, has_listed = false;
  const auto& tokens_of_use = world.schedule().batch.tokens_of_use;
  for (const auto& [monomial, coefficient] : polynomials.terms(polynomial)) {
    for (const auto& [number, exponent] : monomial) {
      const Variable& variable = polynomials.variable_at(number);
      if (variable.kind != Variable::Kind::tokens) continue;
      has_tokens = true;
      const auto listed = tokens_of_use.find(variable.entry);
      has_listed = has_listed || (listed != tokens_of_use.end() && listed->second.kind == Batch::Tokens::Kind::list);
    }
  }
  if (has_listed) return "numbers of tokens, and proofs do not look at those that the file lists one by one";
  return has_tokens ? "numbers of tokens that are open" : "sizes that are open";
}

}  // namespace

int Evaluator::number(const Expression& expression, const EvaluationContext& context) {
  known_.forget();
  require_few_digits(expression.tree(), context);
  return number(expression.tree(), context);
}

int Evaluator::condition(const Expression& expression, const EvaluationContext& context) {
  known_.forget();
  require_few_digits(expression.tree(), context);
  return condition(expression.tree(), context);
}

int Evaluator::number(const Node& node, const EvaluationContext& context) {
  const Value value = evaluate(node, context);
  if (value.truth) throw OutOfReach(context.step, "\"" + expression::shown(node) + "\" is no number");
  return value.value;
}

int Evaluator::condition(const Node& node, const EvaluationContext& context) {
  const Value value = evaluate(node, context);
  if (!value.truth) throw OutOfReach(context.step, "\"" + expression::shown(node) + "\" is no condition");
  return value.value;
}

int Evaluator::constant_name(int level, int coordinate) const {
  const int name = diagrams_.at_level(level).constant_name(coordinate);
  if (name < 0) throw NeedsConstant{level, coordinate};
  return name;
}

int Evaluator::at(Axis axis, int coordinate, int name, const std::string& step) {
  int all = 1;
  for (const auto& [level, digit] : world_.digits(axis, coordinate, step))
    all = diagrams_.multiply(all, diagrams_.equal(level, name, constant_name(level, digit)));
  return all;
}

Signs Evaluator::signs(int polynomial, const EvaluationContext& context) const {
  const std::string entry = context.use.empty() ? "" : world_.entry(context.use);
  return world_.polynomials().signs(polynomial, [&](const Variable& variable) {
    const bool own = variable.kind == Variable::Kind::tokens && !entry.empty() && variable.entry == entry;
    Span span = world_.span(variable);
    span.least = std::max(span.least, own ? 1 : 0);
    return span;
  });
}

std::optional<SizeRange> Evaluator::range_of(const std::string& name, const EvaluationContext& context) {
  Node node;
  node.kind = Node::Kind::name;
  node.text = name;
  try {
    const Value value = named(node, context);
    if (value.truth) return SizeRange::exactly(Rational(value.value));  // no diagram: it is one of the layout
    const auto [low, high] =
        world_.polynomials().bounds(value.value, [&](const Variable& variable) { return world_.span(variable); });
    return SizeRange{low, high, false, false};
  } catch (const OutOfReach&) {
    return std::nullopt;
  }
}

Evaluator::Value Evaluator::evaluate(const Node& node, const EvaluationContext& context) {
  return known_(node, [&] { return evaluate_anew(node, context); });
}

Evaluator::Value Evaluator::evaluate_anew(const Node& node, const EvaluationContext& context) {
  using Kind = Node::Kind;
  Polynomials& polynomials = world_.polynomials();
  switch (node.kind) {
    case Kind::value:
      if (const auto* number = std::get_if<Rational>(&node.value)) return {false, polynomials.constant(*number)};
      if (const auto* truth = std::get_if<bool>(&node.value)) return {true, *truth ? 1 : 0};
      throw OutOfReach(context.step, "it compares strings");
    case Kind::name:
      return named(node, context);
    case Kind::rank_axis:
      // A value in the coordinate is zero at some coordinates and not at others: which there are depends on the size.
      if (world_.open().for_every_size && world_.schedule().mesh.size(node.axis) > 1)
        throw OutOfReach(context.step, "it calculates with \"" + expression::shown(node) +
                                           "\", and only comparing it with a number, first or last is followed");
      return {false, world_.coordinate(node.axis)};
    case Kind::micro_batch:
      if (context.any_micro_batch)
        throw NeedsUnrolling{context.step, "it tells the micro-batches apart by their number"};
      return {false, polynomials.constant(Rational(context.micro_batch))};
    case Kind::step:
      return {false, polynomials.constant(Rational(context.optimizer_step))};
    case Kind::tokens:
    case Kind::sum: {
      unsigned axes = node.all_micro_batches ? all_micro_batches : 0;
      for (const Axis axis : node.axes) axes |= bit(axis);
      int counted = -1;
      if (!context.any_micro_batch && context.micro_batch >= 0)
        counted = world_.schedule().batch.first_micro_batch(context.optimizer_step) + context.micro_batch;
      return {false, world_.tokens(node.text, axes, counted, context.optimizer_step)};
    }
    case Kind::negate:
      return {false, polynomials.negate(number(*node.children[0], context))};
    case Kind::logical_not:
      return {true, diagrams_.complement(condition(*node.children[0], context))};
    case Kind::binary:
      return binary(node, context);
    case Kind::call:
      return {false, call(node, context)};
    case Kind::end:
      break;
  }
  throw OutOfReach(context.step, "it evaluates \"" + expression::shown(node) + "\"");
}

Evaluator::Value Evaluator::named(const Node& node, const EvaluationContext& context) {
  Polynomials& polynomials = world_.polynomials();
  const std::string& name = node.text;
  const Mesh& mesh = world_.schedule().mesh;
  if (const std::optional<Axis> axis = axis_named(name)) return {false, world_.size(*axis, context.step)};
  if (name == "world") return {false, world_.world_size()};
  if (name == "micro_batches") return {false, world_.micro_batches(context.optimizer_step)};
  if (name == "steps") return {false, polynomials.constant(Rational(world_.schedule().batch.steps()))};
  if (name == "virtual_stages") return {false, polynomials.constant(Rational(mesh.layout().virtual_stages))};
  if (name == "sequence_parallel") return {true, mesh.layout().sequence_parallel ? 1 : 0};
  if (name == "pipeline_groups_agree" && world_.open().least.empty())
    return {true, mesh.pipeline_groups_agree() ? 1 : 0};
  if (name == "instance_groups_agree" &&
      (world_.open().least.empty() || mesh::instance_groups_always_agree(mesh.layout())))
    return {true, mesh::instance_groups_agree(mesh.layout()) ? 1 : 0};
  throw OutOfReach(context.step, "it speaks of \"" + name + "\"");
}

int Evaluator::end(const Node& node, const Node& other, const EvaluationContext& context) {
  if (node.text == "first") return 0;
  Polynomials& polynomials = world_.polynomials();
  const int minus_one = polynomials.constant(Rational(-1));
  if (other.kind == Node::Kind::micro_batch)
    return polynomials.add(world_.micro_batches(context.optimizer_step), minus_one);
  if (other.kind == Node::Kind::step) return polynomials.constant(Rational(world_.schedule().batch.steps() - 1));
  throw OutOfReach(context.step, "it speaks of \"" + node.text + "\" of something other than rank.AXIS");
}

Evaluator::Value Evaluator::binary(const Node& node, const EvaluationContext& context) {
  Polynomials& polynomials = world_.polynomials();
  const std::string& op = node.text;
  const Node& left = *node.children[0];
  const Node& right = *node.children[1];
  const bool arithmetic = op == "+" || op == "-" || op == "*" || op == "/";
  if (!arithmetic) {
    const bool comparison = op != "and" && op != "or";
    try {
      return comparison ? compared(node, context) : logical(node, context);
    } catch (const DependsOnSizes& limit) {
      // Each side for itself may depend on what both together do not.
      if (const auto holds = truth(node, context)) return {true, *holds ? 1 : 0};
      if (!comparison) throw;
      throw DependsOnSizes(limit.step, limit.what(), conditions_with(node, limit.conditions, context));
    } catch (const OutOfReach& limit) {
      // What is no polynomial, as floor(dp / 8), may still be above a number.
      if (const auto holds = truth(node, context)) return {true, *holds ? 1 : 0};
      if (!comparison) throw;
      throw DependsOnSizes(limit.step, limit.what(), conditions_with(node, {}, context));
    }
  }
  const int a = number(left, context), b = number(right, context);
  if (op == "+") return {false, polynomials.add(a, b)};
  if (op == "-") return {false, polynomials.subtract(a, b)};
  if (op == "*") return {false, polynomials.multiply(a, b)};
  if (b != 0 && signs(b, context).zero)
    throw OutOfReach(context.step, "\"" + expression::shown(right) + "\" may be 0, and it divides by it");
  if (b == 0) throw OutOfReach(context.step, "\"" + expression::shown(right) + "\" is 0, and it divides by it");
  const std::optional<int> inverse = polynomials.inverse(b);
  if (!inverse) throw OutOfReach(context.step, "it divides by the sum " + polynomials.to_string(b));
  return {false, polynomials.multiply(a, *inverse)};
}

Evaluator::Value Evaluator::logical(const Node& node, const EvaluationContext& context) {
  const bool both = node.text == "and";
  const int a = condition(*node.children[0], context);
  if (both ? a == 0 : a == 1) return {true, a};
  const int b = condition(*node.children[1], context);
  return {true, both ? diagrams_.multiply(a, b) : diagrams_.either(a, b)};
}

Evaluator::Value Evaluator::compared(const Node& node, const EvaluationContext& context) {
  const std::string& op = node.text;
  const Node &left = *node.children[0], &right = *node.children[1];
  const auto varies = [&](const Node& side) {
    return side.kind == Node::Kind::rank_axis && world_.schedule().mesh.size(side.axis) > 1;
  };
  static const std::map<std::string, std::string> mirrored = made_once([] {
    return std::map<std::string, std::string>{{"<", ">"},   {">", "<"},   {"<=", ">="},
                                              {">=", "<="}, {"==", "=="}, {"!=", "!="}};
  });
  if (varies(left)) return {true, compare_rank(left, right, op, context)};
  if (varies(right)) return {true, compare_rank(right, left, mirrored.at(op), context)};
  const auto side = [&](const Node& one, const Node& other) -> Value {
    if (one.kind != Node::Kind::end) return evaluate(one, context);
    if (other.kind == Node::Kind::rank_axis) return {false, 0};  // an axis of one rank
    return {false, end(one, other, context)};
  };
  if (left.kind == Node::Kind::value && right.kind == Node::Kind::value &&
      std::holds_alternative<std::string>(left.value) && std::holds_alternative<std::string>(right.value))
    return {true, (left.value == right.value) == (op == "==") ? 1 : 0};
  const Value a = side(left, right), b = side(right, left);
  if (a.truth != b.truth) throw OutOfReach(context.step, "it compares a number with a condition");
  if (a.truth) {
    const int same = diagrams_.add(diagrams_.multiply(a.value, b.value),
                                   diagrams_.multiply(diagrams_.complement(a.value), diagrams_.complement(b.value)));
    return {true, op == "==" ? same : diagrams_.complement(same)};
  }
  const int difference = world_.polynomials().subtract(a.value, b.value);
  return {true, compare(op, difference, context, node) ? 1 : 0};
}

bool Evaluator::compare(const std::string& op, int difference, const EvaluationContext& context, const Node& node) {
  const Signs signs = this->signs(difference, context);
  const auto decided = [&](bool holds, bool fails) {
    if (holds && fails) {
      throw DependsOnSizes(context.step,
                           "whether \"" + expression::shown(node) + "\" holds depends on " +
                               depends_on_what(world_, world_.polynomials(), difference),
                           DependsOnSizes::Conditions{});
    }
    return holds;
  };
  if (op == "==") return decided(signs.zero, signs.negative || signs.positive);
  if (op == "!=") return decided(signs.negative || signs.positive, signs.zero);
  if (op == "<") return decided(signs.negative, signs.zero || signs.positive);
  if (op == "<=") return decided(signs.negative || signs.zero, signs.positive);
  if (op == ">") return decided(signs.positive, signs.zero || signs.negative);
  return decided(signs.positive || signs.zero, signs.negative);
}

/// A coordinate that is the last one at some of the sizes that are open, and not at others, is none of the names that a
/// level has. Numbers that stand beside rank.AXIS make cases of their own (visit_named), so that this is about others.
void Evaluator::require_not_last(const Node& rank, const Node& other, int coordinate,
                                 const EvaluationContext& context) const {
  for (const Level& level : world_.levels()) {
    if (!level.open || !level.is_of(rank.axis) || coordinate <= 0 || coordinate <= level.least - 2) continue;
    throw OutOfReach(context.step, "\"" + expression::shown(rank) + "\" is compared with \"" +
                                       expression::shown(other) + "\", which is " + std::to_string(coordinate) +
                                       ", and whether that is the last coordinate depends on the size of " +
                                       std::string(lockstep::name_of(level.axis)));
  }
}

/// `rank` is rank.AXIS, of an axis with several ranks.
int Evaluator::compare_rank(const Node& rank, const Node& other, std::string op, const EvaluationContext& context) {
  const Axis axis = rank.axis;
  const int size = world_.schedule().mesh.size(axis);
  const auto is = [&](int coordinate) { return at(axis, coordinate, rank_name, context.step); };
  const auto below = [&](int coordinate) {  // rank.AXIS < coordinate
    if (coordinate <= 0) return 0;
    if (coordinate == size - 1) return diagrams_.complement(is(size - 1));
    if (coordinate >= size) return 1;
    if (coordinate > 4)
      throw OutOfReach(context.step,
                       "\"" + expression::shown(rank) + "\" is compared with " + std::to_string(coordinate));
    int any = 0;
    for (int i = 0; i < coordinate; ++i) any = diagrams_.either(any, is(i));
    return any;
  };
  int coordinate = 0;
  if (other.kind == Node::Kind::end) {
    coordinate = other.text == "first" ? 0 : size - 1;
  } else {
    const std::optional<Rational> value = world_.polynomials().as_constant(number(other, context));
    if (!value)
      throw OutOfReach(context.step, "\"" + expression::shown(rank) + "\" is compared with a size that is open");
    if (!value->is_integer()) {
      if (op == "==" || op == "!=") return op == "==" ? 0 : 1;
      op = op == "<" || op == "<=" ? "<=" : ">";  // with the whole number below
    }
    const std::optional<std::int64_t> whole = value->floor().to_int64();
    if (!whole || *whole > 1 << 20 || *whole < -(1 << 20))
      throw OutOfReach(context.step, "\"" + expression::shown(rank) + "\" is compared with " + value->to_string());
    coordinate = static_cast<int>(*whole);
    const bool open = std::any_of(world_.levels().begin(), world_.levels().end(),
                                  [&](const Level& level) { return level.open && level.is_of(axis); });
    if (open && coordinate >= size)
      throw OutOfReach(context.step, "\"" + expression::shown(rank) + "\" is compared with " + value->to_string());
    require_not_last(rank, other, coordinate, context);
  }
  const bool exists = coordinate >= 0 && coordinate < size;
  if (op == "==") return exists ? is(coordinate) : 0;
  if (op == "!=") return exists ? diagrams_.complement(is(coordinate)) : 1;
  if (op == "<") return below(coordinate);
  if (op == ">=") return diagrams_.complement(below(coordinate));
  if (op == "<=")
    return coordinate == size - 1 ? 1
           : exists               ? diagrams_.either(below(coordinate), is(coordinate))
                                  : below(coordinate);
  return coordinate == size - 1 ? 0
         : exists               ? diagrams_.complement(diagrams_.either(below(coordinate), is(coordinate)))
                                : diagrams_.complement(below(coordinate));
}

int Evaluator::call(const Node& node, const EvaluationContext& context) {
  Polynomials& polynomials = world_.polynomials();
  std::vector<int> arguments;
  bool constant = true;
  for (const auto& child : node.children) {
    arguments.push_back(number(*child, context));
    constant = constant && polynomials.as_constant(arguments.back()).has_value();
  }
  if (constant) {
    Node copy = node;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      auto value = std::make_shared<Node>();
      value->value = *polynomials.as_constant(arguments[i]);
      copy.children[i] = value;
    }
    try {
      return polynomials.constant(std::get<Rational>(expression::evaluate(copy, Environment{})));
    } catch (const ExpressionError& error) {
      throw OutOfReach(context.step, error.what());
    }
  }
  if (node.text == "min" || node.text == "max") {
    std::size_t best = 0;
    for (std::size_t i = 1; i < arguments.size(); ++i) {
      const Signs difference = signs(polynomials.subtract(arguments[i], arguments[best]), context);
      if (difference.positive && difference.negative) {
        throw DependsOnSizes(context.step,
                             "which of \"" + expression::shown(node) + "\" is taken depends on what is open",
                             *expression::binary_node("<=", node.children[i], node.children[best]));
      }
      if (node.text == "max" ? difference.positive : difference.negative) best = i;
    }
    return arguments[best];
  }
  if (node.text == "lcm") {
    if (const auto largest = multiple_of_all(arguments, context)) return *largest;
  }
  const auto simpler = simpler_than(node, context);
  const auto own = simpler ? simpler : std::make_shared<const Node>(node);
  const auto whole = number_in_ranges(*own, [&](const std::string& name) { return range_of(name, context); });
  if (whole && whole->is_one()) return polynomials.constant(*whole->low);
  throw DependsOnSizes(context.step, "it takes " + node.text + "() of something that is open",
                       *expression::binary_node("==", own, own));
}

void require_decided(const Expressions& conditions, World& world) {
  Diagrams diagrams(world.polynomials(), world.levels());
  for (const Expression& condition : conditions) {
    try {
      Evaluator(world, diagrams).condition(condition, EvaluationContext{});
    } catch (const NeedsConstant&) {
      // What it is about is no size alone, and whoever wrote the steps took one answer for all ranks.
      throw OutOfReach("", "a condition of its framework, \"" + expression::shown(condition.tree()) +
                               "\", tells ranks apart by their coordinate");
    } catch (const OutOfReach&) {
      // 'WHAT' != '' and SIZE == NUMBER: what was read holds for this size.
      const Expression::Node& tree = condition.tree();
      const Expression::Node* mark = tree.children.empty() ? nullptr : tree.children[0].get();
      const auto* what =
          mark == nullptr || mark->children.empty() ? nullptr : std::get_if<std::string>(&mark->children[0]->value);
      if (tree.text != "and" || mark->text != "!=" || what == nullptr) throw;
      const std::string why =
          *what + " depends on \"" + expression::shown(*tree.children[1]->children[0]) + "\", a size that is open";
      // Sizes without end are not looked at one by one.
      const auto range = Evaluator(world, diagrams).range_of(tree.children[1]->children[0]->text, EvaluationContext{});
      if (range && range->high) throw DependsOnSizes("", why, *tree.children[1]);
      throw OutOfReach("", why);
    }
  }
}

}  // namespace lockstep::parametric
