// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/step_list.h"

#include <algorithm>

namespace lockstep::diagnosis {

namespace {

void append(const std::vector<Step>& steps, const std::string& each, std::vector<ListedStep>& list) {
  for (std::size_t at = 0; at < steps.size(); ++at) {
    list.push_back(
        {&steps[at], each, at > 0 ? steps[at - 1].name : "", at + 1 < steps.size() ? steps[at + 1].name : ""});
    append(steps[at].steps, steps[at].name, list);
  }
}

}  // namespace

std::vector<ListedStep> listed_steps(const std::vector<Step>& steps) {
  std::vector<ListedStep> list;
  append(steps, "", list);
  return list;
}

const ListedStep* find_listed(const std::vector<ListedStep>& list, const std::string& name) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const ListedStep& one) { return one.name() == name; });
  return found == list.end() || name.empty() ? nullptr : &*found;
}

ActingStep::ActingStep(const Step& step) : uses_(step.uses), params_(step.params.items()) {}

bool ActingStep::acts_on(const Parameter& parameter) const {
  const bool used = uses_.empty() || std::any_of(uses_.begin(), uses_.end(), [&](const std::string& use) {
                      return std::find(parameter.uses.begin(), parameter.uses.end(), use) != parameter.uses.end();
                    });
  return used && params_.chooses(parameter, parameter.numel());
}

}  // namespace lockstep::diagnosis
