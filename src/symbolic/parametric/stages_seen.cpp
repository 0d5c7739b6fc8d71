// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/stages_seen.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "src/base/at.h"
#include "src/symbolic/parametric/named_coordinates.h"

namespace lockstep::parametric {

namespace {

/// "first", "last", or "" for another stage.
std::string end_of(int stage, int stages) {
  if (stage == 0) return "first";
  return stage == stages - 1 ? "last" : "";
}

/// The largest number of stages above `least` that is allowed while the other sizes are those of base(); nothing where
/// larger ones are not known to be refused.
std::optional<int> most_stages(const Layouts& layouts, int least) {
  constexpr int most = 512;
  for (int stages = most; stages > least; --stages) {
    if (!layouts.read(layouts.with(Axis::pp, stages))) continue;
    return stages < most ? std::optional(stages) : std::nullopt;
  }
  return least;
}

}  // namespace

void StagesSeen::add(const std::vector<const StepSelections*>& sides) {
  const StepSelections& first = *sides.front();
  const Schedule& schedule = first.schedule();
  const bool apart = std::any_of(sides.begin(), sides.end(),
                                 [](const StepSelections* side) { return tells_stages_apart(side->schedule()); });
  if (!apart) return;
  const int stages = schedule.mesh.size(Axis::pp);
  most_ = std::max(most_, stages);
  for (int stage = 0; stage < stages; ++stage) stages_.insert(first.stage_name(stage));
  std::vector<std::map<std::string, int>> numbers(sides.size());
  for (std::size_t side = 0; side < sides.size(); ++side) {
    for (const Logical& logical : sides[side]->schedule().model.logicals())
      numbers[side].emplace(logical.name, static_cast<int>(numbers[side].size()));
  }
  for (const Class& one : first.classes()) {
    for (const int logical : one.logicals) {
      const std::string& name = schedule.model.logicals()[at(logical)].name;
      std::string key, step;
      bool by_stage = false;
      std::map<std::string, int> cut_numbers;
      std::optional<int> stage;
      for (std::size_t i = 0; i < sides.size(); ++i) {
        const StepSelections* side = sides[i];
        const auto found_number = numbers[i].find(name);
        stage = found_number == numbers[i].end() ? std::nullopt : side->only_stage(found_number->second);
        if (!stage) break;
        const int number = found_number->second;
        // Behind the name of the stage.
        const std::string whole = side->alone(number, cut_numbers).key;
        key += whole.substr(whole.find(':')) + " ";
        if (const auto found = side->step_by_stage(number, *stage)) by_stage = true, step = *found;
      }
      if (!stage) continue;
      ends_[name].insert(end_of(*stage, stages));
      Kind& kind = kinds_[key];
      if (by_stage) kind.step = step;
      kind.stages.insert(by_stage ? first.stage_name(*stage) : "");
      kind.parameters.insert(name);
    }
  }
}

void StagesSeen::require_all(const Layouts& layouts) const {
  std::map<std::string, std::string> at_most;
  for (const auto& [key, kind] : kinds_) {
    if (kind.stages.contains("") || kind.stages == stages_) continue;
    if (at_most.empty()) {
      const std::optional<int> stages = most_stages(layouts, most_);
      const auto scenario = stages ? layouts.read(layouts.with(Axis::pp, *stages)) : nullptr;
      if (!scenario) throw OutOfReach(kind.step, "it is not known up to which pp parameters move to other stages");
      for (const Logical& logical : scenario->schedule->model.logicals()) {
        const auto& stage = scenario->schedule->model.parameters()[at(logical.parameters.front())].stage;
        at_most[logical.name] = stage ? end_of(*stage, *stages) : "";
      }
    }
    for (const std::string& name : kind.parameters) {
      const std::set<std::string>& ends = ends_.at(name);
      const auto there = at_most.find(name);
      const bool stays =
          ends.size() == 1 && !ends.begin()->empty() && there != at_most.end() && there->second == *ends.begin();
      if (!stays) {
        throw OutOfReach(kind.step,
                         fmt::format("it does not do the same on all stages, and with more of them \"{}\" lies on "
                                     "others than at the sizes that were looked at",
                                     name));
      }
    }
  }
}

}  // namespace lockstep::parametric
