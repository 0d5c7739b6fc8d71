// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>

#include "src/diagnosis/candidates.h"
#include "src/diagnosis/shrink.h"
#include "src/diagnosis/step_list.h"

namespace lockstep::diagnosis {

std::vector<Candidate> placement_edits(const Schedule& schedule) {
  std::vector<Candidate> edits;
  std::set<std::string> tags;
  for (const ListedStep& step : listed_steps(schedule.steps)) {
    for (std::string item : step.step->params.items()) {
      if (item.starts_with('!')) item.erase(0, 1);
      if (item.starts_with("tag:")) tags.insert(item.substr(4));
    }
  }
  for (const Parameter& parameter : one_of_each_class(schedule)) {
    if (parameter.frozen) continue;
    const auto set = [&](const char* key, const std::vector<std::string>& words) {
      std::vector<Json> items;
      items.reserve(words.size());
      for (const std::string& word : words) items.push_back(Json::string(word));
      const Json value = items.empty() ? Json() : Json::array(std::move(items));
      edits.push_back({Candidate::Kind::placement, "", Edit::set_parameter(parameter.name, {{key, {}, value}})});
    };
    for (const std::string& tag : tags) {
      std::vector<std::string> changed = parameter.tags;
      if (std::erase(changed, tag) == 0) changed.push_back(tag);
      set("tags", changed);
    }
    const bool is_on_tp = std::any_of(parameter.shard.begin(), parameter.shard.end(), [](const Shard& shard) {
      return shard.axis == Axis::tp || shard.axis == Axis::etp;
    });
    if (!parameter.partial.empty())
      set("partial", {});
    else if (schedule.mesh.size(Axis::tp) > 1 && !is_on_tp)
      set("partial", {"tp"});
  }
  return edits;
}

}  // namespace lockstep::diagnosis
