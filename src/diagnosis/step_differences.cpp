// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "lockstep/comparison.h"

namespace lockstep {

namespace {

/// Which of these numbers are in one of their longest ascending subsequences.
std::vector<bool> in_order(const std::vector<std::size_t>& numbers) {
  std::vector<std::size_t> ends;  // by length - 1: where the subsequence of this length with the smallest end ends
  std::vector<std::size_t> previous(numbers.size(), numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto longer = std::lower_bound(ends.begin(), ends.end(), numbers[i],
                                         [&](std::size_t at, std::size_t number) { return numbers[at] < number; });
    if (longer != ends.begin()) previous[i] = *std::prev(longer);
    longer == ends.end() ? static_cast<void>(ends.push_back(i)) : static_cast<void>(*longer = i);
  }
  std::vector<bool> result(numbers.size());
  for (std::size_t at = ends.empty() ? numbers.size() : ends.back(); at < numbers.size(); at = previous[at])
    result[at] = true;
  return result;
}

}  // namespace

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
  const std::vector<bool> kept = in_order(common);

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
