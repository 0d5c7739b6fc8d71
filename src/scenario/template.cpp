// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

#include "src/expression/node.h"
#include "src/scenario/reading.h"

namespace lockstep::scenario {

std::string text_of(const ExpressionValue& value) {
  if (const auto* number = std::get_if<Rational>(&value)) return number->to_string();
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  return std::get<std::string>(value);
}

Json json_of(const ExpressionValue& value, const Place& place) {
  if (const auto* truth = std::get_if<bool>(&value)) return Json::boolean(*truth, place);
  const auto* number = std::get_if<Rational>(&value);
  if (number != nullptr && number->is_integer()) return Json::number(number->to_string(), place);
  return Json::string(text_of(value), place);
}

bool check_defined_name(const Json::Member& member, Diagnostics& diagnostics) {
  static const std::set<std::string, std::less<>> words = made_once([] {
    const std::vector<std::string> of_language = split_words(
        "world sequence_parallel pipeline_groups_agree instance_groups_agree virtual_stages micro_batches micro_batch "
        "steps step tokens rank "
        "first last n and or not "
        "true false sum "
        "lcm min max floor ceil");
    std::set<std::string, std::less<>> all(of_language.begin(), of_language.end());
    all.insert(axis_names().begin(), axis_names().end());
    return all;
  });
  if (!is_identifier(member.key)) {
    diagnostics.add(key_place(member),
                    fmt::format("expected a name of letters, digits and underscores, found \"{}\"", member.key));
    return false;
  }
  if (!words.contains(member.key)) return true;
  diagnostics.add(key_place(member),
                  fmt::format("\"{}\" has a meaning in expressions already: choose another name", member.key));
  return false;
}

Template::Template(Environment environment, Diagnostics& diagnostics)
    : environment_(environment), diagnostics_(diagnostics) {
  environment_.names = &names_;
}

void Template::define(const std::string& name, const Json& value) {
  undefine(name);
  if (value.is_null()) {
    nothing_.insert(name);
  } else if (value.is_boolean()) {
    names_[name] = value.as_boolean();
  } else if (value.is_number()) {
    names_[name] = Rational::parse(value.text()).value_or(Rational(0));
  } else if (value.is_string()) {
    names_[name] = value.text();
  }
}

void Template::define(const std::string& name, std::int64_t value) { names_[name] = Rational(value); }

void Template::define_size(const std::string& name, const Json& value) {
  define(name, value);
  sizes_.insert(name);
}

void Template::undefine(const std::string& name) {
  sizes_.erase(name);
  derived_.erase(name);
  places_.erase(name);
  decided_for_.erase(name);
  mixed_.erase(name);
  digits_.erase(name);
  names_.erase(name);
  nothing_.erase(name);
}

void Template::define_all(const Json& let) {
  if (!let.is_object()) {
    diagnostics_.add(let.place(),
                     fmt::format("expected an object from names to expressions, found {}", let.describe()));
    return;
  }
  for (const Json::Member& member : let.members()) {
    if (!check_defined_name(member, diagnostics_)) continue;
    // What decides about a name that nothing uses decides nothing.
    Expressions before;
    std::swap(before, decided_);
    const std::optional<Json> value = resolve(member.value);
    if (!value) {
      define(member.key, Json());
    } else if (const std::optional<ExpressionValue> result = evaluate(*value)) {
      names_[member.key] = *result;
      if (keep_sizes_ && !std::holds_alternative<std::string>(*result)) derive(member.key, *value);
    }
    std::swap(before, decided_);
    note_faults(member.value);
    if (is_mixed(member.value)) mixed_.insert(member.key);
    if (keep_sizes_) digits_[member.key] = digits_of_value(member.value);
    if (!before.empty()) decided_for_[member.key] = std::move(before);
  }
}

void Template::note_use(const std::string& name) {
  const auto found = decided_for_.find(name);
  if (found != decided_for_.end()) decided_.insert(found->second.begin(), found->second.end());
}

void Template::note_use(const Expression::Node& node) {
  if (decided_for_.empty()) return;
  if (node.kind == Expression::Node::Kind::name) note_use(node.text);
  if (node.text == "and" || node.text == "or") {
    // `split and far`: without the option nobody asks how far.
    for (const auto& child : node.children) {
      if (known_truth(*child) == (node.text == "or")) return;
    }
  }
  for (const auto& child : node.children) note_use(*child);
}

std::optional<bool> Template::known_truth(const Expression::Node& node) const {
  const std::function<bool(const Expression::Node&)> is_known = [&](const Expression::Node& part) {
    using Kind = Expression::Node::Kind;
    if (part.kind == Kind::name)
      return names_.count(part.text) > 0 && derived_.count(part.text) == 0 && decided_for_.count(part.text) == 0 &&
             sizes_.count(part.text) == 0;
    const bool operation = part.kind == Kind::value || part.kind == Kind::logical_not || part.kind == Kind::binary;
    return operation &&
           std::all_of(part.children.begin(), part.children.end(), [&](const auto& child) { return is_known(*child); });
  };
  if (!is_known(node)) return std::nullopt;
  try {
    const ExpressionValue value = expression::evaluate(node, environment_);
    if (const bool* truth = std::get_if<bool>(&value)) return *truth;
  } catch (const ExpressionError&) {
    // Whoever evaluates all of it says so.
  }
  return std::nullopt;
}

void Template::note_decided(const Expression& condition) {
  if (keep_sizes_ && condition.tree().kind != Expression::Node::Kind::value) decided_.insert(condition);
}

void Template::note_value(const Json& expression, const ExpressionValue& value) {
  // What chose a string is noted where it was chosen.
  if (!keep_sizes_ || std::holds_alternative<std::string>(value)) return;
  const std::optional<Expression> plain = this->plain(expression);
  // Else no size has a part in it.
  if (!plain || plain->tree().kind == Expression::Node::Kind::value) return;
  note_decided(std::holds_alternative<bool>(value)
                   ? *plain
                   : Expression::of(expression::binary_node("==", plain->root(), expression::value_node(value))));
}

void Template::derive(const std::string& name, const Json& value) {
  const Expression* expression = value.is_string() ? parse(value) : nullptr;
  if (expression == nullptr) return;
  constexpr std::string_view others[] = {"world", "micro_batches", "pipeline_groups_agree", "instance_groups_agree"};
  const std::set<std::string> names = expression->names();
  const bool by_size = std::any_of(names.begin(), names.end(), [&](const std::string& one) {
    return derived_.count(one) > 0 ||
           (names_.count(one) == 0 && (axis_named(one) || std::count(std::begin(others), std::end(others), one) > 0));
  });
  if (!by_size) return;
  derived_.insert_or_assign(name, with_names(*expression));
  places_[name] = value.place();
  require_walkable(derived_.at(name), Expression::of(expression::name_node(name)), value.place());
}

bool Template::uses_names(const Expression& expression) const {
  const std::set<std::string> names = expression.names();
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return names_.count(name) > 0; });
}

Expression Template::with_names(const Expression& written) const {
  std::map<std::string, ExpressionValue, std::less<>> known;
  std::map<std::string, Expression, std::less<>> shared;
  for (const std::string& name : written.names()) {
    if (const auto derived = derived_.find(name); derived != derived_.end()) {
      shared.insert(*derived);
    } else if (const auto found = names_.find(name);
               found != names_.end() && !(keep_sizes_ && sizes_.count(name) > 0)) {
      known.insert(*found);
    }
  }
  return written.substitute(known, shared);
}

void Template::require_walkable(const Expression& plain, const Expression& written, const Place& place) const {
  const auto is_too_deep = [](const Expression& some) { return some.tree().depth > expression::depth_limit; };
  if (is_too_deep(plain)) throw out_of_reach(written, place, "is an expression too deep", is_too_deep);
}

OverBudget Template::out_of_reach(const Expression& written, const Place& place, const std::string& why,
                                  const std::function<bool(const Expression&)>& is_so) const {
  std::string what = fmt::format("the expression \"{}\"", expression::shown(written.tree()));
  Place at = place;
  for (const std::string& name : written.names()) {
    const auto found = derived_.find(name);
    if (found == derived_.end() || !is_so(found->second)) continue;
    what = fmt::format("the name \"{}\" in \"let\"", name);
    at = places_.at(name);
    break;
  }
  const std::string file = at.source == nullptr ? "" : fmt::format(" ({}:{})", at.source->name, line_column(at).line);
  return OverBudget(fmt::format("{}{} {}, written out in sizes", what, file, why));
}

const Expression* Template::parse(const Json& value) {
  if (!check_type(value, Type::expression, "", diagnostics_)) return nullptr;
  static const std::string yes = "true", no = "false";  // of few letters: no memory is asked for
  const std::string& key = value.is_boolean() ? (value.as_boolean() ? yes : no) : value.text();
  const auto found = parsed_.find(key);
  if (found != parsed_.end()) return &found->second;
  return &parsed_.emplace(key, Expression::parse(key)).first->second;
}

std::optional<ExpressionValue> Template::evaluate(const Json& value) {
  try {
    const Expression* expression = parse(value);
    if (expression == nullptr) return std::nullopt;
    constexpr std::int64_t characters_of_a_unit = 4;
    Budget::spend(4 + (value.is_string() ? static_cast<std::int64_t>(value.text().size()) / characters_of_a_unit : 0));
    note_use(expression->tree());
    return expression->evaluate(environment_);
  } catch (const ExpressionError& error) {
    diagnostics_.add(inside_string(value, error.offset, error.length), error.what());
    return std::nullopt;
  }
}

std::optional<bool> Template::condition(const Json& value) {
  const std::optional<ExpressionValue> result = evaluate(value);
  if (!result) return std::nullopt;
  if (const bool* truth = std::get_if<bool>(&*result)) {
    if (const auto plain = keep_sizes_ ? this->plain(value) : std::nullopt) note_decided(*plain);
    return *truth;
  }
  diagnostics_.add(value.place(),
                   fmt::format("expected a condition, but {} is {}", value.describe(), text_of(*result)));
  return std::nullopt;
}

std::optional<std::int64_t> Template::whole(const Json& value) {
  const std::optional<ExpressionValue> result = evaluate(value);
  if (!result) return std::nullopt;
  if (const Rational* number = std::get_if<Rational>(&*result)) {
    if (const std::optional<std::int64_t> integer = number->to_int64()) return integer;
  }
  diagnostics_.add(value.place(),
                   fmt::format("expected a whole number, but {} is {}", value.describe(), text_of(*result)));
  return std::nullopt;
}

std::optional<Json> Template::resolve(const Json& value) {
  if (value.is_string() && nothing_.count(value.text()) > 0) {
    note_use(value.text());
    return std::nullopt;
  }
  if (value.is_array()) {
    std::vector<Json> items;
    for (const Json& item : value.items()) {
      if (std::optional<Json> resolved = resolve(item)) items.push_back(std::move(*resolved));
    }
    return Json::array(std::move(items), value.place());
  }
  if (!value.is_object()) return value;
  if (value.find("if") != nullptr) {
    const Json* branch = chosen(value);
    return branch != nullptr ? resolve(*branch) : std::nullopt;
  }
  std::vector<Json::Member> members;
  for (const Json::Member& member : value.members()) {
    if (std::optional<Json> resolved = resolve(member.value))
      members.push_back({member.key, member.key_place, std::move(*resolved)});
  }
  return Json::object(std::move(members), value.place());
}

const Json* Template::chosen(const Json& value) {
  const Json* branch = &value;
  while (branch != nullptr && branch->is_object() && branch->find("if") != nullptr) {
    const Fields fields(*branch, Object::conditional, "", "in a conditional value", diagnostics_);
    const std::optional<bool> holds = fields.find("if") != nullptr ? condition(*fields.find("if")) : std::nullopt;
    branch = holds ? fields.find(*holds ? "then" : "else") : nullptr;
  }
  return branch;
}

Json Template::interpolate(const Json& text) {
  std::string result;
  const std::string& from = text.text();
  for (std::size_t at = 0; at < from.size();) {
    const std::size_t open = from.find('{', at);
    const std::size_t close = open == std::string::npos ? open : from.find('}', open);
    if (close == std::string::npos) {
      if (at == 0) return text;
      result += from.substr(at);
      break;
    }
    result += from.substr(at, open - at);
    const Json part =
        Json::string(from.substr(open + 1, close - open - 1), inside_string(text, open, close - open + 1));
    if (const std::optional<ExpressionValue> value = evaluate(part)) {
      result += text_of(*value);
      note_value(part, *value);
    }
    at = close + 1;
  }
  return Json::string(result, text.place());
}

Json Template::replace(const Json& text) {
  const auto found = names_.find(text.text());
  if (found == names_.end()) return interpolate(text);
  note_use(text.text());
  if (derived_.count(text.text()) > 0) note_value(text, found->second);
  return json_of(found->second, text.place());
}

std::optional<Expression> Template::plain(const Json& value) {
  if (!value.is_string()) return std::nullopt;
  try {
    const Expression* expression = parse(value);
    if (expression == nullptr) return std::nullopt;
    Expression plain = plain_of(*expression);
    require_walkable(plain, *expression, value.place());
    return plain;
  } catch (const ExpressionError& error) {
    diagnostics_.add(inside_string(value, error.offset, error.length), error.what());
    return std::nullopt;
  }
}

Expression Template::plain_of(const Expression& written) {
  if (!uses_names(written)) return written;
  note_use(written.tree());
  return with_names(written);
}

Json Template::substitute(const Json& value) {
  const std::optional<Expression> plain = this->plain(value);
  if (!plain || plain->was_parsed()) return value;
  if (plain->tree().kind == Expression::Node::Kind::value) return json_of(plain->tree().value, value.place());
  if (auto text = expression::print(plain->tree(), expression::longest_text))
    return Json::string(*std::move(text), value.place());
  throw out_of_reach(*parse(value), value.place(), fmt::format("has more than {} characters", expression::longest_text),
                     [](const Expression& some) { return !expression::print(some.tree(), expression::longest_text); });
}

void Template::apply_rules(const Json& rules, const std::function<Place(const std::set<std::string>&)>& place_of) {
  // A rule decides which sizes there are, not what happens at them.
  const Expressions decided = decided_;
  for (const Json& rule : rules.items()) {
    const Fields fields(rule, Object::rule, "", "in a rule", diagnostics_);
    const Json* refuse = fields.find("refuse");
    const Json* because = fields.find("because");
    if (refuse == nullptr || because == nullptr) continue;
    const std::optional<bool> holds = condition(*refuse);
    if (holds && keep_sizes_) note_rule(*refuse, because->text(), *holds ? refusing_ : rules_);
    if (!holds.value_or(false)) continue;
    const Expression* expression = parse(*refuse);
    const std::size_t before = diagnostics_.size();
    const Json why = interpolate(*because);
    // A mistake in the reason is the only one that is known.
    if (diagnostics_.size() == before) diagnostics_.add(place_of(expression->names()), why.text());
  }
  decided_ = decided;
  for (const Json& rule : rules.items()) {
    if (const Json* refuse = rule.find("refuse")) note_faults(*refuse);
  }
}

}  // namespace lockstep::scenario
