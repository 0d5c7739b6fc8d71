// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_set>

namespace lockstep {

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
    if (params != nullptr && params->is_array() && reading.diagnostics.size() == before && params->items().size() > 1) {
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

void check_expect(const Json& expect, const std::vector<std::string>& steps, const Model* model, Reading& reading) {
  for (const char* key : {"stuck", "blame"}) {
    const Json* list = expect.find(key);
    if (list == nullptr) continue;
    for (const Json& item : list->items()) check_known_step(item, steps, reading);
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

}  // namespace lockstep
