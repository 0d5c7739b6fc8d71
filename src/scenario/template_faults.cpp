// SPDX-License-Identifier: Apache-2.0
//
// Where an expression has no value at other sizes than those that are read: a divisor is 0 there, or lcm() is asked for
// what is no positive whole number, or a name is another kind of value, or none. Such a size is refused, whether or not
// anything uses the expression.
#include <fmt/format.h>

#include <algorithm>

#include "src/expression/node.h"
#include "src/scenario/template.h"

namespace lockstep::scenario {

namespace {

using Node = Expression::Node;
using Kind = Node::Kind;

/// Where the condition decides whether somebody asks, behind what decided before.
expression::NodePointer with_guard(const expression::NodePointer& guard, const expression::NodePointer& condition,
                                   bool holds) {
  const expression::NodePointer own = holds ? condition : expression::not_node(condition);
  return guard == nullptr ? own : expression::binary_node("and", guard, own);
}

std::optional<Expression> parsed(const std::string& text) {
  try {
    return Expression::parse(text);
  } catch (const ExpressionError&) {
    return std::nullopt;
  }
}

}  // namespace

/// Looks at each node of a tree once for either question.
class Template::Positive {
 public:
  explicit Positive(const Template& names) : names_(names) {}

  bool operator()(const Node& node, bool whole) {
    return (whole ? whole_ : any_)(node, [&] { return is_positive(node, whole); });
  }

 private:
  static bool is_number(const ExpressionValue& value, bool whole) {
    const auto* number = std::get_if<Rational>(&value);
    return number != nullptr && *number > 0 && (!whole || number->is_integer());
  }

  bool is_positive(const Node& node, bool whole) {
    const auto is = [&](const auto& child) { return (*this)(*child, whole); };
    const auto all = [&] { return std::all_of(node.children.begin(), node.children.end(), is); };
    const std::string& text = node.text;
    switch (node.kind) {
      case Kind::value:
        return is_number(node.value, whole);
      case Kind::name: {
        const auto found = names_.names_.find(text);
        if (found == names_.names_.end() || names_.sizes_.count(text) > 0)
          return axis_named(text) || text == "world" || text == "micro_batches" || text == "virtual_stages" ||
                 text == "steps";
        return names_.derived_.count(text) == 0 && names_.decided_for_.count(text) == 0 &&
               is_number(found->second, whole);
      }
      case Kind::binary:
        return (text == "+" || text == "*" || (text == "/" && !whole)) && all();
      case Kind::call:
        if (text == "lcm") return true;  // where it is none, that is a fault of its own
        if (text == "ceil") return (*this)(*node.children[0], false);
        if (text == "max" && !whole) return std::any_of(node.children.begin(), node.children.end(), is);
        return (text == "min" || text == "max") && all();
      default:
        return false;
    }
  }

  const Template& names_;
  expression::OncePerNode<bool> whole_, any_;
};

bool Template::is_positive(const Node& node, bool whole) const { return Positive(*this)(node, whole); }

bool Template::is_mixed(const Json& value) const {
  const unsigned found = keep_sizes_ ? kinds(value) : 0;
  return (found & (found - 1)) != 0;
}

unsigned Template::kinds(const Json& value) const {
  constexpr unsigned nothing = 1, number = 2, truth = 4, text = 8, any = 15;
  const auto of = [&](const Node& node) -> unsigned {
    const auto found = node.kind == Kind::name ? names_.find(node.text) : names_.end();
    const ExpressionValue* known = found != names_.end()      ? &found->second
                                   : node.kind == Kind::value ? &node.value
                                                              : nullptr;
    if (known != nullptr)
      return std::holds_alternative<bool>(*known) ? truth : std::holds_alternative<Rational>(*known) ? number : text;
    const bool arithmetic = node.text == "+" || node.text == "-" || node.text == "*" || node.text == "/";
    const bool condition = node.kind == Kind::logical_not || (node.kind == Kind::binary && !arithmetic);
    const bool fact = node.text == "sequence_parallel" || node.text == "pipeline_groups_agree" ||
                      node.text == "instance_groups_agree";
    return condition || fact ? truth : number;
  };
  if (value.is_null()) return nothing;
  if (value.is_boolean()) return truth;
  if (value.is_string()) {
    if (nothing_.count(value.text()) > 0) return mixed_.count(value.text()) > 0 ? any : nothing;
    if (mixed_.count(value.text()) > 0) return any;
    const auto expression = parsed(value.text());
    return expression ? of(expression->tree()) : any;
  }
  const Json* condition = value.find("if");
  if (condition == nullptr) return number;
  std::optional<bool> known;
  if (condition->is_boolean()) known = condition->as_boolean();
  if (condition->is_string()) {
    if (const auto expression = parsed(condition->text())) known = known_truth(expression->tree());
  }
  unsigned found = 0;
  for (const bool holds : {true, false}) {
    const Json* branch = value.find(holds ? "then" : "else");
    if (known != !holds) found |= branch != nullptr ? kinds(*branch) : nothing;
  }
  return found;
}

void Template::note_rule(const Json& refuse, const std::string& because, TextsOfExpressions& rules) {
  // Names of "let" stand for what they came to here: elsewhere they do where what decided about them comes out alike.
  decided_.clear();
  const std::optional<Expression> plain = this->plain(refuse);
  NodePointer last = plain ? plain->root() : expression::value_node(refuse.is_boolean() && refuse.as_boolean());
  const bool is_known = last->kind == Kind::value;
  if (is_known && !(std::holds_alternative<bool>(last->value) && std::get<bool>(last->value))) return;
  NodePointer rule;
  for (const Expression& condition : decided_) rule = with_guard(rule, condition.root(), condition.truth(environment_));
  const Expression whole = Expression::of(with_guard(rule, last, true));
  require_walkable(whole, *parse(refuse), refuse.place());
  rules.emplace(whole, without_sizes(because));
}

std::string Template::without_sizes(const std::string& text) const {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find('{', at), close = text.find('}', open);
    if (open == std::string::npos || close == std::string::npos) return result + text.substr(at);
    const std::string name = text.substr(open + 1, close - open - 1);
    const auto found = names_.find(name);
    const bool is_same = found != names_.end() && sizes_.count(name) == 0 && derived_.count(name) == 0 &&
                         decided_for_.count(name) == 0 && nothing_.count(name) == 0 && mixed_.count(name) == 0;
    result += text.substr(at, open - at) + (is_same ? text_of(found->second) : "{" + name + "}");
    at = close + 1;
  }
  return result;
}

void Template::note_faults(const Json& value, const NodePointer& guard) {
  if (!keep_sizes_) return;
  const Json* condition = value.is_object() ? value.find("if") : nullptr;
  if (condition == nullptr) {
    // A name that stands for itself may be nothing.
    if (value.is_string() && (nothing_.count(value.text()) > 0 || mixed_.count(value.text()) > 0)) return;
    const auto expression = value.is_string() ? parsed(value.text()) : std::nullopt;
    if (expression) note_faults(expression->root(), guard);
    if (value.is_string() && !expression) note_fault(Expression(), guard);
    return;
  }
  note_faults(*condition, guard);
  const auto expression = condition->is_string() ? parsed(condition->text()) : std::nullopt;
  if (!expression) return;  // whoever chooses by it says so
  const std::optional<bool> known = known_truth(expression->tree());
  for (const bool holds : {true, false}) {
    const Json* branch = value.find(holds ? "then" : "else");
    if (branch == nullptr || known == !holds) continue;
    note_faults(*branch, known ? guard : with_guard(guard, expression->root(), holds));
  }
}

void Template::note_faults(const NodePointer& written, const NodePointer& guard) {
  const Node& node = *written;
  if (node.text == "and" || node.text == "or") {
    const bool goes_on = node.text == "and";
    note_faults(node.children[0], guard);
    const std::optional<bool> known = known_truth(*node.children[0]);
    if (known == !goes_on) return;
    note_faults(node.children[1], known ? guard : with_guard(guard, node.children[0], goes_on));
    return;
  }
  if (node.kind == Kind::name && mixed_.count(node.text) > 0) note_use(node.text);
  for (const auto& child : node.children) note_faults(child, guard);
  // A quotient by what is not plainly positive, or a multiple of what is not plainly that and whole.
  const auto is_faulty = [&](const Node& some) {
    if (some.kind == Kind::binary) return some.text == "/" && !is_positive(*some.children[1], false);
    return some.kind == Kind::call && some.text == "lcm" &&
           !std::all_of(some.children.begin(), some.children.end(),
                        [&](const auto& child) { return is_positive(*child, true); });
  };
  if (!is_faulty(node)) return;
  const bool divides = node.kind == Kind::binary;
  const Expression zero = plain_of(Expression::of(divides ? node.children[1] : written));
  if (zero.tree().kind == Kind::value) {
    const auto* number = std::get_if<Rational>(&zero.tree().value);
    if (number == nullptr || !number->is_zero()) return;
  } else if (divides ? is_positive(zero.tree(), false) : !is_faulty(zero.tree())) {
    return;
  }
  note_fault(zero, guard);
}

void Template::note_fault(const Expression& zero, const NodePointer& guard) {
  NodePointer fault = expression::binary_node("==", zero.root(), expression::value_node(Rational(0)));
  const NodePointer around = guard == nullptr ? nullptr : plain_of(Expression::of(guard)).root();
  if (around != nullptr) {
    const bool* known = around->kind == Kind::value ? std::get_if<bool>(&around->value) : nullptr;
    if (known != nullptr && !*known) return;
    if (known == nullptr) fault = expression::binary_node("and", fault, around);
  }
  decided_.insert(Expression::of(std::move(fault)));
}

}  // namespace lockstep::scenario
