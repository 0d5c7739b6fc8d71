// SPDX-License-Identifier: Apache-2.0
#include "lockstep/edit.h"

#include <algorithm>
#include <utility>

#include "src/scenario/step_keys.h"

namespace lockstep {

Edit Edit::drop(const std::string& step, const std::string& iteration) {
  Edit edit;
  edit.step = {step, iteration, {}};
  return edit;
}

Edit Edit::duplicate(const std::string& step) {
  Edit edit;
  edit.action = Action::duplicate;
  edit.step.name = step;
  return edit;
}

Edit Edit::move(const std::string& step, const std::string& beside, bool after) {
  Edit edit;
  edit.action = Action::move;
  edit.step.name = step;
  edit.beside.name = beside;
  edit.after = after;
  return edit;
}

Edit Edit::insert(Step step, const std::string& beside, bool after) {
  Edit edit;
  edit.action = Action::insert;
  edit.values = std::move(step);
  edit.beside.name = beside;
  edit.after = after;
  return edit;
}

Edit Edit::set(const std::string& step, Step values, std::vector<std::string_view> removed) {
  Edit edit;
  edit.action = Action::set;
  edit.step.name = step;
  edit.values = std::move(values);
  edit.removed = std::move(removed);
  return edit;
}

Edit Edit::set_parameter(const std::string& parameter, std::vector<Json::Member> values) {
  Edit edit;
  edit.action = Action::parameter;
  edit.parameters = Json::string(parameter);
  edit.parameter_values = std::move(values);
  return edit;
}

bool Edit::changes(std::string_view key) const {
  const auto is = [&](std::string_view changed) { return changed.substr(0, changed.find('.')) == key; };
  return action == Action::set &&
         (std::any_of(values.keys.begin(), values.keys.end(), is) || std::any_of(removed.begin(), removed.end(), is));
}

namespace {

void add_values(const Edit& edit, Json& json) {
  const auto set = [&](std::string_view key, const Json& value) {
    const std::size_t dot = key.find('.');
    if (dot == std::string_view::npos) return json.set(key, value);
    const Json* written = json.find(key.substr(0, dot));
    Json geometry = written != nullptr ? *written : Json::object();
    geometry.set(key.substr(dot + 1), value);
    json.set(key.substr(0, dot), geometry);
  };
  for (const std::string_view key : edit.values.keys) set(key, scenario::step_key(key).write(edit.values));
  for (const std::string_view key : edit.removed) set(key, Json());
}

}  // namespace

Json to_json(const Edit& edit) {
  const auto name = [](const EditTarget& target) { return Json::string(target.to_string(), target.place); };
  std::vector<Json::Member> members;
  switch (edit.action) {
    case Edit::Action::drop:
      members.push_back({"drop", {}, name(edit.step)});
      break;
    case Edit::Action::duplicate:
      members.push_back({"duplicate", {}, name(edit.step)});
      break;
    case Edit::Action::move:
      members.push_back({"move", {}, name(edit.step)});
      break;
    case Edit::Action::set:
      members.push_back({"set", {}, name(edit.step)});
      break;
    case Edit::Action::insert:
      members.push_back({"insert", {}, scenario::as_written(edit.values)});
      break;
    case Edit::Action::parameter:
      members.push_back({"parameter", {}, edit.parameters});
      break;
  }
  if (edit.action == Edit::Action::move || edit.action == Edit::Action::insert)
    members.push_back({edit.after ? "after" : "before", {}, name(edit.beside)});
  members.insert(members.end(), edit.parameter_values.begin(), edit.parameter_values.end());
  Json json = Json::object(std::move(members), edit.place);
  if (edit.action == Edit::Action::set) add_values(edit, json);
  return json;
}

Json to_json(const std::vector<Edit>& edits) {
  std::vector<Json> list;
  list.reserve(edits.size());
  for (const Edit& edit : edits) list.push_back(to_json(edit));
  return Json::array(std::move(list));
}

}  // namespace lockstep
