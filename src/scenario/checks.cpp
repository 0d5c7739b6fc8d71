// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "lockstep/operation.h"

namespace lockstep::scenario {

namespace {

void for_each_step(const Json& steps, const std::function<void(const Json&)>& visit) {
  for (const Json& step : steps.items()) {
    visit(step);
    if (const Json* body = step.find("steps")) for_each_step(*body, visit);
  }
}

void check_known_step(const Json& value, const std::vector<std::string>& names, Reading& reading) {
  if (!value.is_string() || std::find(names.begin(), names.end(), value.text()) != names.end()) return;
  const std::string near = did_you_mean(value.text(), names);
  reading.diagnostics.add(value.place(), fmt::format("no step is named \"{}\"{}", value.text(), near));
}

void check_selector_items(const Json& value, SelectorMatches& matches, Reading& reading) {
  for (const Json& item : value.is_string() ? std::vector<Json>{value} : value.items()) {
    // One that cannot be read was reported already.
    if (!item.is_string() || Selectors::check(item.text()) || matches.fits_any(item.text())) continue;
    reading.diagnostics.add(item.place(), fmt::format("selector \"{}\" matches no parameter on any rank{}", item.text(),
                                                      matches.suggestion(item.text())));
  }
}

/// "dp", "dp_cp", "dp_shard_tp", "ends": the group of a step that a repair adds.
bool is_group_word(std::string_view word) {
  if (word == "ends") return true;
  while (!word.empty()) {
    const std::vector<std::string>& axes = axis_names();
    std::size_t longest = 0;
    for (const std::string& axis : axes) {
      const bool whole = word == axis || word.starts_with(axis + "_");
      if (whole) longest = std::max(longest, axis.size());
    }
    if (longest == 0) return false;
    word.remove_prefix(std::min(longest + 1, word.size()));
  }
  return true;
}

/// A step that is missing everywhere gets the name that its repair gives it: "scale", "tp_all_reduce", "norm_2".
bool is_named_by_repair(std::string name) {
  const std::size_t number = name.find_last_not_of("0123456789");
  if (number != std::string::npos && number + 1 < name.size() && name[number] == '_') name.resize(number);
  if (name == "scale" || name == "norm" || name == "zero") return true;
  for (const char* prefix : {"copy_", "accumulate_", "backward_"}) {
    if (name.starts_with(prefix)) return true;
  }
  return std::any_of(operations().begin(), operations().end(), [&](const Operation& operation) {
    const std::string ending = fmt::format("_{}", operation.name);
    return operation.collective && name.ends_with(ending) &&
           is_group_word(std::string_view(name).substr(0, name.size() - ending.size()));
  });
}

}  // namespace

std::vector<std::string> check_step_names(const Json& steps, Reading& reading) {
  std::vector<std::string> names;
  std::unordered_set<std::string> seen;
  for_each_step(steps, [&](const Json& step) {
    const Json* name = step.find("name");
    if (name == nullptr || !name->is_string()) return;
    if (seen.insert(name->text()).second) {
      names.push_back(name->text());
    } else {
      reading.diagnostics.add(name->place(),
                              fmt::format("two steps are named \"{}\"; give one of them another name", name->text()));
    }
  });
  for_each_step(steps, [&](const Json& step) {
    if (const Json* waited = step.find("for")) check_known_step(*waited, names, reading);
  });
  return names;
}

void check_step_selectors(const Json& steps, SelectorMatches& matches, Reading& reading) {
  for_each_step(steps, [&](const Json& step) {
    const std::size_t before = reading.diagnostics.size();
    const Json* params = step.find("params");
    if (params != nullptr) check_selector_items(*params, matches, reading);
    // Each item fits something, and still nothing may be left.
    // What is no text was reported by who reads it.
    const bool is_list =
        params != nullptr && params->is_array() && params->items().size() > 1 &&
        std::all_of(params->items().begin(), params->items().end(), [](const Json& item) { return item.is_string(); });
    if (is_list && reading.diagnostics.size() == before) {
      const std::vector<std::string> items = strings_of(*params);
      const bool readable = std::none_of(items.begin(), items.end(),
                                         [](const std::string& item) { return Selectors::check(item).has_value(); });
      const bool excludes =
          std::any_of(items.begin(), items.end(), [](const std::string& item) { return Selectors::excludes(item); });
      if (readable && excludes && !matches.chooses_any(items)) {
        reading.diagnostics.add(params->place(), "these selectors together choose no parameter on any rank");
      }
    }
    const Json* geometry = step.find("geometry");
    if (const Json* separate = geometry != nullptr ? geometry->find("separate") : nullptr) {
      check_selector_items(*separate, matches, reading);
    }
  });
}

void check_expect(const Json& expect, const std::vector<std::string>& steps, const std::vector<std::string>& missing,
                  const Model* model, Reading& reading) {
  if (const Json* list = expect.find("stuck")) {
    for (const Json& item : list->items()) check_known_step(item, steps, reading);
  }
  if (const Json* list = expect.find("blame")) {
    std::vector<std::string> known = steps;
    known.insert(known.end(), missing.begin(), missing.end());
    for (const Json& item : list->items()) {
      if (!item.is_string() || !is_named_by_repair(item.text())) check_known_step(item, known, reading);
    }
  }
  if (model == nullptr) return;
  SelectorMatches matches(*model);
  if (const Json* parameters = expect.find("parameters")) check_selector_items(*parameters, matches, reading);
  std::vector<std::string> names;
  for (const Parameter& parameter : model->parameters()) names.push_back(parameter.name);
  const std::unordered_set<std::string> known(names.begin(), names.end());
  for (const char* key : {"formula", "norm"}) {
    const Json* object = expect.find(key);
    for (const Json::Member& member : object != nullptr ? object->members() : std::vector<Json::Member>()) {
      if (known.count(member.key) > 0) continue;
      reading.diagnostics.add(key_place(member), fmt::format("no parameter is named \"{}\"{}", member.key,
                                                             did_you_mean(member.key, names)));
    }
  }
}

}  // namespace lockstep::scenario
