// SPDX-License-Identifier: Apache-2.0
#include "lockstep/edit.h"

#include <algorithm>
#include <utility>

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

Edit Edit::insert(const Json& step, const std::string& beside, bool after) {
  Edit edit;
  edit.action = Action::insert;
  edit.inserted = step;
  edit.beside.name = beside;
  edit.after = after;
  return edit;
}

Edit Edit::set(const std::string& step, std::vector<Json::Member> values) {
  Edit edit;
  edit.action = Action::set;
  edit.step.name = step;
  edit.values = std::move(values);
  return edit;
}

Edit Edit::set_parameter(const std::string& parameter, std::vector<Json::Member> values) {
  Edit edit;
  edit.action = Action::parameter;
  edit.parameters = Json::string(parameter);
  edit.values = std::move(values);
  return edit;
}

const Json* Edit::value(std::string_view key) const {
  const auto found =
      std::find_if(values.begin(), values.end(), [&](const Json::Member& member) { return member.key == key; });
  return found == values.end() ? nullptr : &found->value;
}

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
      members.push_back({"insert", {}, edit.inserted});
      break;
    case Edit::Action::parameter:
      members.push_back({"parameter", {}, edit.parameters});
      break;
  }
  if (edit.action == Edit::Action::move || edit.action == Edit::Action::insert)
    members.push_back({edit.after ? "after" : "before", {}, name(edit.beside)});
  members.insert(members.end(), edit.values.begin(), edit.values.end());
  return Json::object(std::move(members), edit.place);
}

Json to_json(const std::vector<Edit>& edits) {
  std::vector<Json> list;
  list.reserve(edits.size());
  for (const Edit& edit : edits) list.push_back(to_json(edit));
  return Json::array(std::move(list));
}

}  // namespace lockstep
