// SPDX-License-Identifier: Apache-2.0
// The values of settings by their types, with what is wrong about them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "src/importers/scenario_builder.h"

namespace lockstep::importers {

namespace {

/// Numbers that arguments and environment variables hold are text.
std::optional<Rational> number_of(const Json& value) {
  if (!value.is_number() && !value.is_string()) return std::nullopt;
  std::optional<Rational> number = Rational::parse(value.text());
  if (number || !value.is_string()) return number;
  // Python writes 1_000_000 and +3.
  std::string digits;
  for (const char c : value.text()) {
    if (c != '_') digits += c;
  }
  if (digits.starts_with('+')) digits.erase(0, 1);
  return Rational::parse(digits);
}

}  // namespace

std::optional<bool> boolean_of(const Json& value) {
  if (value.is_boolean()) return value.as_boolean();
  if (value.is_string() && (value.text() == "true" || value.text() == "True")) return true;
  if (value.is_string() && (value.text() == "false" || value.text() == "False")) return false;
  return std::nullopt;
}

std::string kind_of(const Json& value) {
  constexpr std::size_t longest = 12;  // a longer number may be an account's
  if (value.is_boolean()) return value.as_boolean() ? "true" : "false";
  if (value.is_null()) return "nothing";
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  if (number_of(value) && value.text().size() <= longest) return value.text();
  return value.is_number() ? "a long number" : "a text";
}

Json json_integer(std::int64_t value) { return Json::number(std::to_string(value)); }

Json json_number(const Rational& value) {
  if (value.is_integer()) return Json::number(value.to_string());
  // A decimal fraction where there is one: 3/8 is 0.375.
  Rational scaled = value;
  for (int digits = 1; digits <= 30; ++digits) {
    scaled *= Rational(10);
    if (!scaled.is_integer()) continue;
    std::string text = (scaled.is_negative() ? -scaled : scaled).to_string();
    if (static_cast<int>(text.size()) <= digits) text.insert(0, std::string(digits + 1 - text.size(), '0'));
    text.insert(text.size() - static_cast<std::size_t>(digits), ".");
    return Json::number((value.is_negative() ? "-" : "") + text);
  }
  return Json();
}

const Setting* ScenarioBuilder::read(std::string_view key) {
  const Setting* setting = settings_.find(key);
  if (setting == nullptr || disregarded_.contains(key)) return nullptr;
  if (!setting->unresolved.empty()) {
    mistake(key, setting->unresolved);
    return nullptr;
  }
  return setting->value.is_null() ? nullptr : setting;
}

const Json* ScenarioBuilder::value(std::string_view key) {
  const Setting* setting = read(key);
  return setting != nullptr ? &setting->value : nullptr;
}

bool ScenarioBuilder::is_auto(std::string_view key) const {
  const Setting* setting = settings_.find(key);
  return setting != nullptr && setting->is_auto;
}

std::string ScenarioBuilder::mentioned_at(const std::string& key) const {
  for (const Setting& setting : settings_.all()) {
    if (setting.key == key || setting.key.starts_with(key + ".")) return setting.key;
  }
  return "";
}

std::optional<Rational> ScenarioBuilder::number(std::string_view key) {
  const Json* json = value(key);
  if (json == nullptr) return std::nullopt;
  std::optional<Rational> number = number_of(*json);
  if (!number) mistake(key, "expected a number, found " + kind_of(*json));
  return number;
}

std::optional<std::int64_t> ScenarioBuilder::integer(std::string_view key) {
  const Json* json = value(key);
  if (json == nullptr) return std::nullopt;
  const std::optional<Rational> number = number_of(*json);
  const std::optional<std::int64_t> whole = number ? number->to_int64() : std::nullopt;
  // Sizes are multiplied with each other: far below what 64 bits hold.
  constexpr std::int64_t most = std::int64_t{1} << 40;
  if (!whole || *whole > most || *whole < -most) {
    mistake(key, "expected a whole number of at most 12 digits, found " + kind_of(*json));
    return std::nullopt;
  }
  return whole;
}

bool ScenarioBuilder::boolean(std::string_view key, bool otherwise) {
  const Json* json = value(key);
  if (json == nullptr) return otherwise;
  const std::optional<bool> found = boolean_of(*json);
  if (!found) mistake(key, "expected true or false, found " + kind_of(*json));
  return found.value_or(otherwise);
}

std::string ScenarioBuilder::word(std::string_view key, const std::string& otherwise) {
  const Json* json = value(key);
  if (json == nullptr) return otherwise;
  const ConfigurationKey* row = table_.row(key);
  if (row == nullptr) throw InternalError("a word without a row: " + std::string(key));
  // "no" of accelerate is false to YAML.
  const bool has_text = json->is_string() || json->is_number();
  const std::string text = json->is_boolean() ? (json->as_boolean() ? "yes" : "no") : has_text ? json->text() : "";
  const auto same = [&](const std::string& known) { return same_word(known, text); };
  const auto found = std::find_if(row->words.begin(), row->words.end(), same);
  if (found != row->words.end()) return *found;
  mistake(key, fmt::format("lockstep knows {} here{}", fmt::join(row->words, ", "),
                           json->is_string() ? did_you_mean(json->text(), row->words) : ""));
  return otherwise;
}

}  // namespace lockstep::importers
