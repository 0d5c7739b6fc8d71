// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mutation_flags.h"

#include <algorithm>
#include <set>
#include <string>

#include "src/diagnosis/step_list.h"

namespace lockstep::diagnosis {

namespace {

/// The tags that selectors of the steps name.
std::set<std::string> tags_of(const std::vector<Step>& steps) {
  std::set<std::string> tags;
  const auto add = [&](std::string item) {
    if (item.starts_with('!')) item.erase(0, 1);
    if (item.starts_with("tag:")) tags.insert(item.substr(4));
  };
  for (const ListedStep& step : listed_steps(steps)) {
    for (const std::string& item : step.step->params.items()) add(item);
  }
  return tags;
}

Json list_or_null(const std::vector<std::string>& words) {
  std::vector<Json> items;
  items.reserve(words.size());
  for (const std::string& word : words) items.push_back(Json::string(word));
  return items.empty() ? Json() : Json::array(std::move(items));
}

}  // namespace

std::vector<Edit> parameter_edits(const std::vector<Step>& steps, const Mesh& mesh,
                                  const std::vector<Parameter>& parameters) {
  std::vector<Edit> edits;
  const std::set<std::string> tags = tags_of(steps);
  for (const Parameter& parameter : parameters) {
    if (parameter.frozen) continue;
    const auto set = [&](const char* key, Json value) {
      edits.push_back(Edit::set_parameter(parameter.name, {{key, {}, std::move(value)}}));
    };
    for (const std::string& tag : tags) {
      std::vector<std::string> changed = parameter.tags;
      if (std::erase(changed, tag) == 0) changed.push_back(tag);
      set("tags", list_or_null(changed));
    }
    if (!parameter.partial.empty()) set("partial", Json());
    const auto is_on = [&](Axis axis) {
      return std::any_of(parameter.shard.begin(), parameter.shard.end(),
                         [&](const Shard& shard) { return shard.axis == axis; });
    };
    if (parameter.partial.empty() && mesh.size(Axis::tp) > 1 && !is_on(Axis::tp) && !is_on(Axis::etp))
      set("partial", list_or_null({"tp"}));
  }
  return edits;
}

}  // namespace lockstep::diagnosis
