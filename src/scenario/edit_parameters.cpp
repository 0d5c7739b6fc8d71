// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/scenario/edits.h"

namespace lockstep {

namespace {

/// Local elements of a parameter: what its axes leave of each dimension, rounded up.
std::int64_t local_numel(const Parameter& parameter, const Mesh& mesh) {
  std::int64_t numel = 1;
  for (std::size_t dim = 0; dim < parameter.shape.size(); ++dim) {
    std::int64_t extent = parameter.shape[dim];
    for (const Shard& shard : parameter.shard) {
      if (static_cast<std::size_t>(shard.dim) == dim)
        extent = (extent + mesh.size(shard.axis) - 1) / mesh.size(shard.axis);
    }
    numel *= extent;
  }
  return numel;
}

bool chosen(const std::vector<Json>& selectors, const Parameter& parameter, const Reading& reading) {
  std::vector<std::string> items;
  for (const Json& item : selectors) items.push_back(item.text());
  return Selectors(std::move(items)).chooses(parameter, local_numel(parameter, *reading.mesh));
}

void check_keys(const Json& edit, Reading& reading) {
  const ObjectRow& row = object_row(Object::parameter);
  std::vector<std::string> known;
  for (const KeyRow& key : row.keys) known.emplace_back(key.name);
  for (const Json::Member& member : edit.members()) {
    if (member.key == "parameter" || find_key(row, member.key) != nullptr) continue;
    reading.diagnostics.add(key_place(member), fmt::format("unknown key \"{}\" in the edit \"parameter\"{}", member.key,
                                                           did_you_mean(member.key, known)));
  }
  if (edit.members().size() == 1)
    reading.diagnostics.add(edit.place(), "the edit \"parameter\" names no key to change");
}

Json changed(const Json& parameter, const Json& edit) {
  Json result = parameter;
  for (const Json::Member& member : edit.members()) {
    if (member.key == "parameter") continue;
    if (member.value.is_null()) {
      result.remove(member.key);
    } else {
      set_member(result, member);
    }
  }
  return result;
}

/// Parameters of a list that an edit chooses, by index. Adds a mistake where there are none.
std::vector<std::size_t> select(const std::vector<Json>& parameters, const Json& value, Reading& reading) {
  const std::vector<Json> selectors = value.is_string() ? std::vector<Json>{value} : value.items();
  std::vector<std::size_t> list;
  std::set<std::string> names;
  // Mistakes in a parameter are reported when all edits are done.
  Reading quiet = reading;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::optional<Parameter> parameter = read_parameter(parameters[i], quiet);
    if (!parameter) continue;
    names.insert(parameter->name);
    for (const std::string& tag : parameter->tags) names.insert("tag:" + tag);
    if (chosen(selectors, *parameter, reading)) list.push_back(i);
  }
  if (list.empty()) {
    const std::string item = selectors[0].text();
    reading.diagnostics.add(value.place(), fmt::format("\"{}\" selects no parameter{}", item,
                                                       did_you_mean(item, {names.begin(), names.end()})));
  }
  return list;
}

}  // namespace

Json apply_parameter_edits(const Json& parameters, const Json& edits, Reading& reading) {
  std::vector<Json> list = parameters.items();
  for (const Json& edit : edits.items()) {
    const Json* value = edit.find("parameter");
    if (value == nullptr || action_of(edit, reading) != "parameter") continue;
    const std::size_t before = reading.diagnostics.size();
    check_keys(edit, reading);
    if (!check_type(*value, Type::selectors, "", reading.diagnostics)) continue;
    read_selectors(*value, reading);
    if (reading.diagnostics.size() != before) continue;
    for (const std::size_t i : select(list, *value, reading)) list[i] = changed(list[i], edit);
  }
  return Json::array(std::move(list), parameters.place());
}

}  // namespace lockstep
