// SPDX-License-Identifier: Apache-2.0
//
// Where an expression has no value at other sizes than those that are read: a divisor is 0 there, or lcm() is asked for
// what is no positive whole number, or a name is another kind of value, or none, or a number has too many digits; or a
// branch that is taken there alone is a mistake whatever the sizes are. Such a size is refused, whether or not anything
// uses the expression.
#include <fmt/format.h>

#include <algorithm>

#include "src/expression/node.h"
#include "src/scenario/reading.h"
#include "src/scenario/template.h"

namespace lockstep::scenario {

namespace {

using Node = Expression::Node;
using Kind = Node::Kind;

/// What a value may be; several of them where sizes decide which.
struct Kinds {
  static constexpr unsigned nothing = 1, number = 2, truth = 4, text = 8, any = 15;
};

unsigned kind_of_value(const ExpressionValue& value) {
  return std::holds_alternative<bool>(value)       ? Kinds::truth
         : std::holds_alternative<Rational>(value) ? Kinds::number
                                                   : Kinds::text;
}

/// Where the condition decides whether somebody asks, behind what decided before.
expression::NodePointer with_guard(const expression::NodePointer& guard, const expression::NodePointer& condition,
                                   bool holds) {
  const expression::NodePointer own = holds ? condition : expression::not_node(condition);
  return guard == nullptr ? own : expression::binary_node("and", guard, own);
}

/// Whether it compares `last` with what has none.
bool ends_wrongly(const Node& comparison) {
  const auto wrongly = [](const Node& end, const Node& other) {
    return end.kind == Kind::end && end.text == "last" && other.kind != Kind::rank_axis &&
           other.kind != Kind::micro_batch && other.kind != Kind::step;
  };
  const Node &left = *comparison.children[0], &right = *comparison.children[1];
  return wrongly(left, right) || wrongly(right, left);
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
  const auto of = [&](const Node& node) -> unsigned {
    const auto found = node.kind == Kind::name ? names_.find(node.text) : names_.end();
    const ExpressionValue* known = found != names_.end()      ? &found->second
                                   : node.kind == Kind::value ? &node.value
                                                              : nullptr;
    if (known != nullptr) return kind_of_value(*known);
    const bool arithmetic = node.text == "+" || node.text == "-" || node.text == "*" || node.text == "/";
    const bool condition = node.kind == Kind::logical_not || (node.kind == Kind::binary && !arithmetic);
    const bool fact = node.text == "sequence_parallel" || node.text == "pipeline_groups_agree" ||
                      node.text == "instance_groups_agree";
    return condition || fact ? Kinds::truth : Kinds::number;
  };
  if (value.is_null()) return Kinds::nothing;
  if (value.is_boolean()) return Kinds::truth;
  if (value.is_string()) {
    if (nothing_.count(value.text()) > 0) return mixed_.count(value.text()) > 0 ? Kinds::any : Kinds::nothing;
    if (mixed_.count(value.text()) > 0) return Kinds::any;
    const auto expression = parsed(value.text());
    return expression ? of(expression->tree()) : Kinds::any;
  }
  const Json* condition = value.find("if");
  if (condition == nullptr) return Kinds::number;
  std::optional<bool> known;
  if (condition->is_boolean()) known = condition->as_boolean();
  if (condition->is_string()) {
    if (const auto expression = parsed(condition->text())) known = known_truth(expression->tree());
  }
  unsigned found = 0;
  for (const bool holds : {true, false}) {
    const Json* branch = value.find(holds ? "then" : "else");
    if (known != !holds) found |= branch != nullptr ? kinds(*branch) : Kinds::nothing;
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
  // A name that is not there is a mistake where somebody asks for it, and no size.
  if (expression::any_node(
          whole.tree(), [&](const Node& node) { return node.kind == Kind::name && kind_of(node) == Kinds::nothing; }))
    return;
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
  if (!value.is_object() || value.find("if") == nullptr) {
    // A name that stands for itself may be nothing.
    if (value.is_string() && (nothing_.count(value.text()) > 0 || mixed_.count(value.text()) > 0)) return;
    if (value.is_number() || value.is_boolean()) return;
    const auto expression = value.is_string() ? parsed(value.text()) : std::nullopt;
    if (!expression) return note_fault(guard);
    note_faults(expression->root(), guard);
    return;
  }
  Diagnostics mistakes;
  const Fields fields(value, Object::conditional, "", "in a conditional value", mistakes);
  if (!mistakes.empty()) return note_fault(guard);
  const Json& condition = *value.find("if");
  std::optional<bool> known;
  NodePointer written;
  if (condition.is_boolean()) {
    known = condition.as_boolean();
  } else {
    const auto expression = condition.is_string() ? parsed(condition.text()) : std::nullopt;
    if (!expression) return note_fault(guard);
    written = expression->root();
    note_faults(written, guard);
    if (!is_of_kind(*written, Kinds::truth)) return note_fault(guard);
    known = known_truth(*written);
  }
  for (const bool holds : {true, false}) {
    const Json* branch = value.find(holds ? "then" : "else");
    if (branch == nullptr || known == !holds) continue;
    note_faults(*branch, known ? guard : with_guard(guard, written, holds));
  }
}

void Template::note_faults(const NodePointer& written, const NodePointer& guard, bool digits_are_noted) {
  const Node& node = *written;
  if (!has_operands(node)) note_fault(guard);
  // Who works a number out works out what it is made of.
  digits_are_noted = digits_are_noted || note_digits(written, guard);
  if (node.text == "and" || node.text == "or") {
    const bool goes_on = node.text == "and";
    note_faults(node.children[0], guard);
    const std::optional<bool> known = known_truth(*node.children[0]);
    if (known == !goes_on) return;
    note_faults(node.children[1], known ? guard : with_guard(guard, node.children[0], goes_on));
    return;
  }
  if (node.kind == Kind::name && mixed_.count(node.text) > 0) note_use(node.text);
  for (const auto& child : node.children) {
    // What it stands for hangs on the other side.
    if (child->kind != Kind::end) note_faults(child, guard, digits_are_noted);
  }
  note_coordinates(node, guard);
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

/// A coordinate of a rank has a value here where its axis has no other one: there is no rank.
void Template::note_coordinates(const Node& node, const NodePointer& guard) {
  const auto has_one = [&](Axis axis) {
    note_fault(Expression::of(expression::binary_node("-", expression::name_node(std::string(name_of(axis))),
                                                      expression::value_node(Rational(1)))),
               guard, "!=");
  };
  if (node.kind == Kind::rank_axis) has_one(node.axis);
  if (node.kind != Kind::sum && node.kind != Kind::tokens) return;
  const auto summed = [&](Axis axis) { return std::find(node.axes.begin(), node.axes.end(), axis) != node.axes.end(); };
  const bool shard = summed(Axis::dp_shard), replicate = summed(Axis::dp_replicate);
  if (shard != replicate) has_one(shard ? Axis::dp_replicate : Axis::dp_shard);
  if (!shard && !replicate && !summed(Axis::dp)) has_one(Axis::dp);
  for (const Axis axis : {Axis::cp, Axis::sp}) {
    if (!summed(axis)) has_one(axis);
  }
}

/// Whoever looks whether it is 0 sees at which sizes it has too many digits. Whether it may have.
bool Template::note_digits(const NodePointer& written, const NodePointer& guard) {
  if (!expression::limits_digits(*written)) return false;
  const auto few = [&](const std::string& name) { return digits_of_name(name); };
  if (expression::DigitsOfNodes(few)(*written).are_few()) return false;
  note_fault(plain_of(Expression::of(written)), guard);
  return true;
}

expression::Digits Template::digits_of_name(const std::string& name) const {
  const auto known = digits_.find(name);
  if (known != digits_.end()) return known->second;
  const auto found = names_.find(name);
  const Rational* number = found != names_.end() ? std::get_if<Rational>(&found->second) : nullptr;
  return number != nullptr && sizes_.count(name) == 0 ? expression::digits_of(*number) : expression::digits_of_a_size;
}

expression::Digits Template::digits_of_value(const Json& value) const {
  if (value.is_number()) return expression::digits_of(Rational::parse(value.text()).value_or(Rational(0)));
  if (value.is_string()) {
    const auto expression = parsed(value.text());
    const auto of_name = [&](const std::string& name) { return digits_of_name(name); };
    return expression ? expression::DigitsOfNodes(of_name)(expression->tree()) : expression::Digits{};
  }
  expression::Digits most;
  for (const char* branch : {"then", "else"}) {
    if (const Json* chosen = value.is_object() ? value.find(branch) : nullptr)
      most = expression::most_of(most, digits_of_value(*chosen));
  }
  return most;
}

/// Names stand for what they are here: where they are another kind elsewhere, what decided about that comes out alike.
unsigned Template::kind_of(const Node& node) const {
  switch (node.kind) {
    case Kind::value:
      return kind_of_value(node.value);
    case Kind::negate:
    case Kind::call:
    case Kind::rank_axis:
    case Kind::sum:
      return Kinds::number;
    case Kind::logical_not:
      return Kinds::truth;
    case Kind::binary:
      return expression::limits_digits(node) ? Kinds::number : Kinds::truth;
    case Kind::end:  // which hangs on what it is compared with
      return Kinds::number;
    default:
      break;
  }
  try {
    return kind_of_value(expression::evaluate(node, environment_));
  } catch (const ExpressionError&) {
    return Kinds::nothing;
  }
}

bool Template::is_of_kind(const Node& node, unsigned kind) const { return kind_of(node) == kind; }

/// Whether the operands are of the kinds that the node works with, and there is what a leaf names.
bool Template::has_operands(const Node& node) const {
  const auto all = [&](unsigned kind) {
    return std::all_of(node.children.begin(), node.children.end(),
                       [&](const auto& child) { return is_of_kind(*child, kind); });
  };
  switch (node.kind) {
    case Kind::negate:
    case Kind::call:
      return all(Kinds::number);
    case Kind::logical_not:
      return all(Kinds::truth);
    case Kind::binary:
      if (node.text == "and" || node.text == "or") return all(Kinds::truth);
      if (ends_wrongly(node)) return false;
      if (node.text == "==" || node.text == "!=")
        return kind_of(*node.children[0]) == kind_of(*node.children[1]) &&
               !is_of_kind(*node.children[0], Kinds::nothing);
      return all(Kinds::number);
    case Kind::sum:
      return node.all_micro_batches;
    default:
      return kind_of(node) != Kinds::nothing;
  }
}

void Template::note_fault(const NodePointer& guard) {
  if (guard != nullptr) note_fault(Expression(), guard);
}

void Template::note_fault(const Expression& number, const NodePointer& guard, const char* sign) {
  const Expression fault = Expression::of(expression::fold(
      expression::binary_node(sign, number.root(), expression::value_node(Rational(0))), Environment{}));
  const bool* always = std::get_if<bool>(&fault.tree().value);
  if (fault.tree().kind == Kind::value && always != nullptr && !*always) return;
  const NodePointer around = guard == nullptr ? nullptr : plain_of(Expression::of(guard)).root();
  const bool* asked = around != nullptr && around->kind == Kind::value ? std::get_if<bool>(&around->value) : nullptr;
  if (asked != nullptr && !*asked) return;
  if (around == nullptr || asked != nullptr) return note_decided(fault);
  note_decided(fault.tree().kind == Kind::value ? Expression::of(around)
                                                : Expression::of(expression::binary_node("and", around, fault.root())));
}

}  // namespace lockstep::scenario
