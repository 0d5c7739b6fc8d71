// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "src/diagnosis/candidates.h"
#include "src/diagnosis/step_list.h"

namespace lockstep {

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
    if (right[at].each == step.each && find_listed(steps, right[at].name) != nullptr)
      return Neighbour{right[at].name, true};
  }
  for (std::size_t at = index + 1; at < right.size(); ++at) {
    if (right[at].each == step.each && find_listed(steps, right[at].name) != nullptr)
      return Neighbour{right[at].name, false};
  }
  return std::nullopt;
}

/// Edits merge a geometry key by key.
Json::Member changed_keys(const Json& old, const Json::Member& right) {
  if (text_of(old, "kind") != text_of(right.value, "kind")) return right;
  Json geometry = Json::object();
  for (const Json::Member& member : right.value.members()) {
    const Json* same = old.find(member.key);
    if (same == nullptr || !same->same_as(member.value)) geometry.set(member.key, member.value);
  }
  for (const Json::Member& member : old.members()) {
    if (right.value.find(member.key) == nullptr) geometry.set(member.key, Json());
  }
  return {right.key, {}, geometry};
}

}  // namespace

std::vector<Candidate> restoring_edits(const Json& steps, const Json& right) {
  const std::vector<ListedStep> now = listed_steps(steps), then = listed_steps(right);
  std::vector<Candidate> candidates;
  for (std::size_t index = 0; index < then.size(); ++index) {
    const ListedStep& step = then[index];
    if (step.name.empty()) continue;
    const ListedStep* same = find_listed(now, step.name);
    if (same == nullptr) {
      if (const auto place = place_in(now, then, index))
        candidates.push_back({Candidate::Kind::restore, step.name, Edit::insert(step.step, place->name, place->after)});
      continue;
    }
    std::vector<Json::Member> values;
    for (const Json::Member& member : step.step.members()) {
      const Json* old = same->step.find(member.key);
      if (member.key == "steps" || (old != nullptr && old->same_as(member.value))) continue;
      values.push_back(old != nullptr && member.key == "geometry" ? changed_keys(*old, member) : member);
    }
    for (const Json::Member& member : same->step.members()) {
      if (step.step.find(member.key) == nullptr) values.push_back({member.key, {}, Json()});
    }
    if (!values.empty())
      candidates.push_back({Candidate::Kind::restore, step.name, Edit::set(step.name, std::move(values))});
  }
  return candidates;
}

}  // namespace lockstep
