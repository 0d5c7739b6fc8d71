// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "lockstep/comparison.h"
#include "src/diagnosis/longest_run.h"

namespace lockstep {

bool StepDifference::changed() const {
  if (before == nullptr || after == nullptr || moved) return true;
  return before->step->op != after->step->op || before->step->reduction != after->step->reduction ||
         before->calls != after->calls || before->bytes != after->bytes ||
         before->smallest_group != after->smallest_group || before->largest_group != after->largest_group;
}

std::vector<StepDifference> step_differences(const ScheduleComparison& comparison) {
  const std::vector<StepCommunication>&old_steps = comparison.before.communication.steps,
        &new_steps = comparison.after.communication.steps;
  std::map<std::string, std::size_t> old_place, new_place;
  for (std::size_t i = 0; i < old_steps.size(); ++i) old_place.emplace(old_steps[i].step->name, i);
  for (std::size_t i = 0; i < new_steps.size(); ++i) new_place.emplace(new_steps[i].step->name, i);

  std::vector<std::size_t> common;  // places before, in the order after
  for (const StepCommunication& step : new_steps) {
    if (const auto found = old_place.find(step.step->name); found != old_place.end()) common.push_back(found->second);
  }
  const std::vector<bool> kept = diagnosis::in_longest_run(common);

  std::vector<StepDifference> result;
  std::size_t next_old = 0, next_common = 0;
  const auto add_gone_until = [&](std::size_t end) {
    for (; next_old < end; ++next_old) {
      if (new_place.count(old_steps[next_old].step->name) == 0)
        result.push_back({&old_steps[next_old], nullptr, false});
    }
  };
  for (const StepCommunication& step : new_steps) {
    const auto found = old_place.find(step.step->name);
    if (found == old_place.end()) {
      result.push_back({nullptr, &step, false});
      continue;
    }
    const bool moved = !kept[next_common++];
    if (!moved) add_gone_until(found->second);
    result.push_back({&old_steps[found->second], &step, moved});
  }
  add_gone_until(old_steps.size());
  return result;
}

}  // namespace lockstep
