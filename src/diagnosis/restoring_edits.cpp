// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "src/diagnosis/candidates.h"
#include "src/diagnosis/step_list.h"
#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

namespace {

/// Next to a step, behind it or in front.
struct Neighbour {
  std::string name;
  bool after = false;
};

/// Where a step of `right` would go in `steps`: behind its nearest neighbour before it that is there, or in front of
/// the nearest after it.
std::optional<Neighbour> place_in(const std::vector<ListedStep>& steps, const std::vector<ListedStep>& right,
                                  std::size_t index) {
  const ListedStep& step = right[index];
  for (std::size_t at = index; at-- > 0;) {
    if (right[at].each == step.each && find_listed(steps, right[at].name()) != nullptr)
      return Neighbour{right[at].name(), true};
  }
  for (std::size_t at = index + 1; at < right.size(); ++at) {
    if (right[at].each == step.each && find_listed(steps, right[at].name()) != nullptr)
      return Neighbour{right[at].name(), false};
  }
  return std::nullopt;
}

/// What makes `now` say what `right` says, nothing where it does. Edits merge a geometry key by key.
std::optional<Edit> changing(const Step& now, const Step& right) {
  Step values = right;
  values.keys.clear();
  std::vector<std::string_view> removed;
  const auto differs = [&](std::string_view key) { return !scenario::step_key(key).same(now, right); };
  for (const std::string_view key : right.keys) {
    if (key == "steps" || (scenario::says(now, key) && !differs(key))) continue;
    if (key != "geometry" || !scenario::says(now, key) || differs("geometry.kind")) {
      values.keys.push_back(key);
      continue;
    }
    for (const scenario::StepKey& part : scenario::step_keys()) {
      if (!part.name.starts_with("geometry.") || !differs(part.name)) continue;
      (part.same(right, Step()) ? removed : values.keys).push_back(part.name);
    }
  }
  for (const std::string_view key : now.keys) {
    if (!scenario::says(right, key)) removed.push_back(key);
  }
  if (values.keys.empty() && removed.empty()) return std::nullopt;
  return Edit::set(right.name, std::move(values), std::move(removed));
}

}  // namespace

std::vector<Candidate> restoring_edits(const std::vector<Step>& steps, const std::vector<Step>& right) {
  const std::vector<ListedStep> now = listed_steps(steps), then = listed_steps(right);
  std::vector<Candidate> candidates;
  for (std::size_t index = 0; index < then.size(); ++index) {
    const Step& step = *then[index].step;
    if (step.name.empty()) continue;
    const ListedStep* same = find_listed(now, step.name);
    std::optional<Edit> edit;
    if (same != nullptr) {
      edit = changing(*same->step, step);
    } else if (const auto place = place_in(now, then, index)) {
      edit = Edit::insert(step, place->name, place->after);
    }
    if (edit) candidates.push_back({Candidate::Kind::restore, step.name, std::move(*edit)});
  }
  return candidates;
}

}  // namespace lockstep::diagnosis
