// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

#include "src/base/budget.h"
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
  decided_for_.erase(name);
  mixed_.erase(name);
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
    std::set<std::string> before;
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

void Template::note_decided(const Json& condition) {
  if (keep_sizes_ && condition.is_string()) decided_.insert(condition.text());
}

void Template::note_value(const Json& expression, const ExpressionValue& value) {
  // What chose a string is noted where it was chosen.
  if (!keep_sizes_ || std::holds_alternative<std::string>(value)) return;
  const Json plain = substitute(expression);
  if (!plain.is_string()) return;  // no size has a part in it
  if (std::holds_alternative<bool>(value))
    note_decided(plain);
  else
    decided_.insert(fmt::format("({}) == ({})", plain.text(), text_of(value)));
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
  std::map<std::string, ExpressionValue, std::less<>> known = names_;
  for (const auto& [derived, text] : derived_) known.erase(derived);
  // Text that stands for names which stand for text doubles with each of them.
  constexpr std::size_t most_characters = 10'000;
  const auto out_of_reach = [&](const std::string& why) {
    const Place& place = value.place();
    const std::string file =
        place.source == nullptr ? "" : fmt::format(" ({}:{})", place.source->name, line_column(place).line);
    return OverBudget(fmt::format("the name \"{}\" in \"let\"{} {}, written out in sizes", name, file, why));
  };
  const std::string text = inlined(value.text());
  if (text.size() > most_characters) throw out_of_reach(fmt::format("has more than {} characters", most_characters));
  try {
    derived_[name] = Expression::parse(text).substitute(known).to_string();
  } catch (const ExpressionError&) {
    // What is written in the file was read already.
    throw out_of_reach("is an expression too deep");
  }
}

std::string Template::inlined(const std::string& text) const {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::string result;
  bool in_string = false;  // a doubled quote ends it and begins it again
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '\'') in_string = !in_string;
    if (in_string || !is_word(text[at])) {
      result += text[at++];
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::string word = text.substr(at, end - at);
    const auto found = derived_.find(word);
    const bool member = at > 0 && text[at - 1] == '.';
    result += found == derived_.end() || member ? word : "(" + found->second + ")";
    at = end;
  }
  return result;
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
    if (keep_sizes_) note_decided(substitute(value));
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

Json Template::substitute(const Json& value) {
  if (!value.is_string()) return value;
  try {
    const Expression* expression = parse(value);
    if (expression == nullptr) return value;
    bool uses_any = false;
    for (const std::string& name : expression->names()) uses_any |= names_.count(name) > 0;
    if (!uses_any) return value;
    note_use(expression->tree());
    const Expression written = derived_.empty() ? *expression : Expression::parse(inlined(value.text()));
    std::map<std::string, ExpressionValue, std::less<>> known;
    for (const std::string& name : written.names()) {
      const auto found = names_.find(name);
      if (found != names_.end() && !(keep_sizes_ && sizes_.count(name) > 0)) known.insert(*found);
    }
    const Expression plain = written.substitute(known);
    try {
      if (const std::optional<ExpressionValue> constant = plain.constant({})) return json_of(*constant, value.place());
    } catch (const ExpressionError&) {
      // It still has names, whose values the environment of the scenario knows.
    }
    return Json::string(plain.to_string(), value.place());
  } catch (const ExpressionError& error) {
    diagnostics_.add(inside_string(value, error.offset, error.length), error.what());
    return value;
  }
}

void Template::apply_rules(const Json& rules, const std::function<Place(const std::set<std::string>&)>& place_of) {
  // A rule decides which sizes there are, not what happens at them.
  const std::set<std::string> decided = decided_;
  for (const Json& rule : rules.items()) {
    const Fields fields(rule, Object::rule, "", "in a rule", diagnostics_);
    const Json* refuse = fields.find("refuse");
    const Json* because = fields.find("because");
    if (refuse == nullptr || because == nullptr) continue;
    const std::optional<bool> holds = condition(*refuse);
    if (holds && keep_sizes_) note_rule(*refuse, because->text(), *holds ? refusing_ : rules_);
    if (!holds.value_or(false)) continue;
    const Expression* expression = parse(*refuse);
    diagnostics_.add(place_of(expression->names()), interpolate(*because).text());
  }
  decided_ = decided;
  for (const Json& rule : rules.items()) {
    if (const Json* refuse = rule.find("refuse")) note_faults(*refuse);
  }
}

}  // namespace lockstep::scenario
