// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/step_list.h"

#include <algorithm>

#include "lockstep/operation.h"

namespace lockstep {

namespace {

void append(const Json& steps, const std::string& each, std::vector<ListedStep>& list) {
  const std::vector<Json>& items = steps.items();
  for (std::size_t at = 0; at < items.size(); ++at) {
    ListedStep listed{items[at], text_of(items[at], "name"), Op::zero, each, "", ""};
    if (const auto op = op_named(text_of(items[at], "op"))) listed.op = *op;
    if (at > 0) listed.before = text_of(items[at - 1], "name");
    if (at + 1 < items.size()) listed.next = text_of(items[at + 1], "name");
    const std::string name = listed.name;
    list.push_back(std::move(listed));
    if (const Json* body = items[at].find("steps")) append(*body, name, list);
  }
}

}  // namespace

std::vector<ListedStep> listed_steps(const Json& steps) {
  std::vector<ListedStep> list;
  append(steps, "", list);
  return list;
}

const ListedStep* find_listed(const std::vector<ListedStep>& list, const std::string& name) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const ListedStep& one) { return one.name == name; });
  return found == list.end() || name.empty() ? nullptr : &*found;
}

SelectorList selectors_of(const Json* params) {
  std::vector<std::string> items;
  if (params != nullptr && params->is_string()) items.push_back(params->text());
  if (params != nullptr) {
    for (const Json& item : params->items()) items.push_back(item.text());
  }
  return SelectorList(items);
}

ActingStep::ActingStep(const Json& step) : uses_(step.find("uses")), params_(selectors_of(step.find("params"))) {}

bool ActingStep::acts_on(const Parameter& parameter) const {
  const bool used =
      uses_ == nullptr || std::any_of(uses_->items().begin(), uses_->items().end(), [&](const Json& use) {
        return std::find(parameter.uses.begin(), parameter.uses.end(), use.text()) != parameter.uses.end();
      });
  return used && params_.chooses(parameter, parameter.numel());
}

std::string text_of(const Json& object, const char* key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? value->text() : "";
}

}  // namespace lockstep
