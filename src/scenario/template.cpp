// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "src/scenario/reading.h"

namespace lockstep {

namespace {

std::string text_of(const ExpressionValue& value) {
  if (const auto* number = std::get_if<Rational>(&value)) return number->to_string();
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  return std::get<std::string>(value);
}

}  // namespace

Json json_of(const ExpressionValue& value, const Place& place) {
  if (const auto* truth = std::get_if<bool>(&value)) return Json::boolean(*truth, place);
  const auto* number = std::get_if<Rational>(&value);
  if (number != nullptr && number->is_integer()) return Json::number(number->to_string(), place);
  return Json::string(text_of(value), place);
}

bool check_defined_name(const Json::Member& member, Diagnostics& diagnostics) {
  std::vector<std::string> words = split_words(
      "world sequence_parallel pipeline_groups_agree virtual_stages micro_batches micro_batch steps step tokens rank "
      "first last n and or not "
      "true false sum "
      "lcm min max floor ceil");
  words.insert(words.end(), axis_names().begin(), axis_names().end());
  if (!is_identifier(member.key)) {
    diagnostics.add(key_place(member),
                    fmt::format("expected a name of letters, digits and underscores, found \"{}\"", member.key));
    return false;
  }
  if (std::find(words.begin(), words.end(), member.key) == words.end()) return true;
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

void Template::undefine(const std::string& name) {
  derived_.erase(name);
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
    const std::optional<Json> value = resolve(member.value);
    if (!value) {
      define(member.key, Json());
    } else if (const std::optional<ExpressionValue> result = evaluate(*value)) {
      names_[member.key] = *result;
      if (keep_sizes_ && std::holds_alternative<Rational>(*result)) derive(member.key, *value);
    }
  }
}

void Template::derive(const std::string& name, const Json& value) {
  const Expression* expression = value.is_string() ? parse(value) : nullptr;
  if (expression == nullptr) return;
  const std::set<std::string> names = expression->names();
  const bool by_size = std::any_of(names.begin(), names.end(), [&](const std::string& one) {
    return derived_.count(one) > 0 ||
           (names_.count(one) == 0 && (axis_named(one) || one == "world" || one == "micro_batches"));
  });
  if (!by_size) return;
  std::map<std::string, ExpressionValue, std::less<>> known = names_;
  for (const auto& [derived, text] : derived_) known.erase(derived);
  derived_[name] = Expression::parse(inlined(value.text())).substitute(known).to_string();
}

std::string Template::inlined(const std::string& text) const {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_word(text[at])) {
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
  const std::string key = value.is_string()    ? value.text()
                          : value.is_boolean() ? (value.as_boolean() ? "true" : "false")
                                               : value.text();
  const auto found = parsed_.find(key);
  if (found != parsed_.end()) return &found->second;
  return &parsed_.emplace(key, Expression::parse(key)).first->second;
}

std::optional<ExpressionValue> Template::evaluate(const Json& value) {
  try {
    const Expression* expression = parse(value);
    if (expression == nullptr) return std::nullopt;
    return expression->evaluate(environment_);
  } catch (const ExpressionError& error) {
    diagnostics_.add(inside_string(value, error.offset, error.length), error.what());
    return std::nullopt;
  }
}

std::optional<bool> Template::condition(const Json& value) {
  const std::optional<ExpressionValue> result = evaluate(value);
  if (!result) return std::nullopt;
  if (const bool* truth = std::get_if<bool>(&*result)) return *truth;
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
  if (value.is_string() && nothing_.count(value.text()) > 0) return std::nullopt;
  if (value.is_array()) {
    std::vector<Json> items;
    for (const Json& item : value.items()) {
      if (std::optional<Json> resolved = resolve(item)) items.push_back(std::move(*resolved));
    }
    return Json::array(std::move(items), value.place());
  }
  if (!value.is_object()) return value;
  if (value.find("if") != nullptr) {
    const Fields fields(value, Object::conditional, "", "in a conditional value", diagnostics_);
    const std::optional<bool> holds = fields.find("if") != nullptr ? condition(*fields.find("if")) : std::nullopt;
    const Json* branch = holds ? fields.find(*holds ? "then" : "else") : nullptr;
    return branch != nullptr ? resolve(*branch) : std::nullopt;
  }
  std::vector<Json::Member> members;
  for (const Json::Member& member : value.members()) {
    if (std::optional<Json> resolved = resolve(member.value))
      members.push_back({member.key, member.key_place, std::move(*resolved)});
  }
  return Json::object(std::move(members), value.place());
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
    if (const std::optional<ExpressionValue> value = evaluate(part)) result += text_of(*value);
    at = close + 1;
  }
  return Json::string(result, text.place());
}

Json Template::replace(const Json& text) {
  const auto found = names_.find(text.text());
  return found != names_.end() ? json_of(found->second, text.place()) : interpolate(text);
}

Json Template::substitute(const Json& value) {
  if (!value.is_string()) return value;
  try {
    const Expression* expression = parse(value);
    if (expression == nullptr) return value;
    bool uses_any = false;
    for (const std::string& name : expression->names()) uses_any |= names_.count(name) > 0;
    if (!uses_any) return value;
    const Expression plain =
        (derived_.empty() ? *expression : Expression::parse(inlined(value.text()))).substitute(names_);
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
  for (const Json& rule : rules.items()) {
    const Fields fields(rule, Object::rule, "", "in a rule", diagnostics_);
    const Json* refuse = fields.find("refuse");
    const Json* because = fields.find("because");
    if (refuse == nullptr || because == nullptr || !condition(*refuse).value_or(false)) continue;
    const Expression* expression = parse(*refuse);
    diagnostics_.add(place_of(expression->names()), interpolate(*because).text());
  }
}

}  // namespace lockstep
