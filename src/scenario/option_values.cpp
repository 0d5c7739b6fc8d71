// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/scenario/expand.h"
#include "src/scenario/other_words.h"

namespace lockstep::scenario {

namespace {

std::string expected_of(const std::string& type) {
  if (type == "boolean") return "true or false";
  if (type == "integer") return "an integer";
  if (type == "number") return "a number";
  if (type == "string") return "a string";
  return "a number, true, false or a string";
}

bool fits(const Json& value, const std::string& type) {
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return whole_number(value).has_value();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  return !value.is_array() && !value.is_object();
}

}  // namespace

void set_option(OptionValues& options, const Json::Member& member, const std::string& what, Reading& reading) {
  const auto found =
      std::find_if(options.begin(), options.end(), [&](const auto& option) { return option.first == member.key; });
  if (found == options.end()) {
    std::vector<std::string> known;
    for (const auto& option : options) known.push_back(option.first);
    std::string near = did_you_mean_here(member.key, known);
    if (near.empty()) near = known.empty() ? "; it has none" : fmt::format("; it has {}", fmt::join(known, ", "));
    reading.diagnostics.add(key_place(member), fmt::format("\"{}\" is no {}{}", member.key, what, near));
    return;
  }
  OptionValue& option = found->second;
  const Json& value = member.value;
  const bool null = value.is_null() && option.value.is_null();
  if (!null && !fits(value, option.type)) {
    reading.diagnostics.add(value.place(), fmt::format("\"{}\": expected {}, found {}", member.key,
                                                       expected_of(option.type), value.describe()));
    return;
  }
  const std::vector<Json>& allowed = option.allowed.items();
  if (!null && !allowed.empty() &&
      std::none_of(allowed.begin(), allowed.end(), [&](const Json& item) { return item.same_as(value); })) {
    std::vector<std::string> words;
    for (const Json& item : allowed)
      words.push_back(item.is_string() ? fmt::format("\"{}\"", item.text()) : item.text());
    reading.diagnostics.add(
        value.place(),
        fmt::format("\"{}\": expected one of {}, found {}{}", member.key, fmt::join(words, ", "), value.describe(),
                    value.is_string() ? did_you_mean(value.text(), strings_of(option.allowed)) : ""));
    return;
  }
  option.value = value;
  option.written = true;
}

void check_default(const std::string& name, const OptionValue& option, Reading& reading) {
  if (option.value.is_null() || fits(option.value, option.type)) return;
  reading.diagnostics.add(option.value.place(), fmt::format("the default of \"{}\": expected {}, found {}", name,
                                                            expected_of(option.type), option.value.describe()));
}

Place place_of_rule(const OptionValues& options, const std::set<std::string>& names, const Place& fallback) {
  for (const auto& [name, option] : options) {
    if (option.written && names.count(name) > 0) return option.value.place();
  }
  return fallback;
}

Environment file_environment(const Reading& reading) {
  Environment environment = reading.environment();
  const std::vector<int>& counts = reading.batch.micro_batch_counts;
  if (std::equal(counts.begin() + 1, counts.end(), counts.begin())) environment.step = 0;
  return environment;
}

}  // namespace lockstep::scenario
