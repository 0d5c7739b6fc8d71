// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "lockstep/operation.h"
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

/// Steps as they are and as they are right.
struct Sides {
  std::vector<ListedStep> now, then;

  /// What brings back one step of those that are right, nothing where nothing is to be done.
  std::optional<Candidate> restoring(std::size_t index, const std::optional<Neighbour>& place) const {
    const Step& step = *then[index].step;
    const ListedStep* same = find_listed(now, step.name);
    if (same == nullptr) {
      if (!place) return std::nullopt;
      return Candidate{Candidate::Kind::restore, step.name, Edit::insert(step, place->name, place->after)};
    }
    std::optional<Edit> change = changing(*same->step, step);
    if (same->each == then[index].each || !place || step.op == Op::each) {
      if (!change) return std::nullopt;
      return Candidate{Candidate::Kind::restore, step.name, std::move(*change)};
    }
    Candidate candidate{Candidate::Kind::restore, step.name, Edit::move(step.name, place->name, place->after)};
    if (change) candidate.together.push_back({Candidate::Kind::restore, step.name, std::move(*change)});
    return candidate;
  }

  /// What brings back steps that belong together, each behind the one before; nothing where that is one edit.
  std::optional<Candidate> restoring(const std::vector<const ListedStep*>& steps) const {
    std::optional<Candidate> all;
    std::size_t count = 0;
    for (std::size_t at = 0; at < steps.size(); ++at) {
      const auto index = static_cast<std::size_t>(steps[at] - then.data());
      std::optional<Candidate> one = restoring(
          index, at == 0 ? place_in(now, then, index) : std::optional(Neighbour{steps[at - 1]->name(), true}));
      if (!one) continue;
      ++count;
      std::vector<Candidate> others = std::exchange(one->together, {});
      if (all) {
        all->together.push_back(std::move(*one));
      } else {
        all = std::move(one);
      }
      for (Candidate& other : others) all->together.push_back(std::move(other));
    }
    return count > 1 ? all : std::nullopt;
  }
};

/// What is brought back in several steps of one op alike, by its keys, at once.
void add_alike(const std::vector<ListedStep>& now, std::size_t singles, std::vector<Candidate>& candidates) {
  std::map<std::string, std::vector<std::size_t>> alike;
  for (std::size_t at = 0; at < singles; ++at) {
    const Edit& edit = candidates[at].edit;
    const ListedStep* step = find_listed(now, candidates[at].step);
    if (edit.action != Edit::Action::set || step == nullptr) continue;
    std::vector<std::string_view> keys = edit.values.keys;
    keys.insert(keys.end(), edit.removed.begin(), edit.removed.end());
    std::sort(keys.begin(), keys.end());
    alike[fmt::format("{} {}", operation(step->op()).name, fmt::join(keys, " "))].push_back(at);
  }
  for (const auto& [change, places] : alike) {
    if (places.size() < 2) continue;
    Candidate all = candidates[places.front()];
    for (std::size_t at = 1; at < places.size(); ++at) all.together.push_back(candidates[places[at]]);
    candidates.push_back(std::move(all));
  }
}

}  // namespace

std::vector<Candidate> restoring_edits(const std::vector<Step>& steps, const std::vector<Step>& right) {
  const Sides sides{listed_steps(steps), listed_steps(right)};
  std::vector<Candidate> candidates;
  for (std::size_t index = 0; index < sides.then.size(); ++index) {
    if (sides.then[index].name().empty()) continue;
    if (auto one = sides.restoring(index, place_in(sides.now, sides.then, index)))
      candidates.push_back(std::move(*one));
  }
  const std::size_t single = candidates.size();
  for (const ListedStep& added : sides.now) {
    if (added.name().empty() || find_listed(sides.then, added.name()) != nullptr) continue;
    candidates.push_back({Candidate::Kind::restore, added.name(), Edit::drop(added.name())});
    for (std::size_t at = 0; at < single; ++at) {
      const ListedStep* step = find_listed(sides.now, candidates[at].step);
      if (step == nullptr || step->op() != added.op() || added.op() == Op::backward) continue;
      Candidate merged = candidates[at];
      merged.together.push_back({Candidate::Kind::restore, added.name(), Edit::drop(added.name())});
      candidates.push_back(std::move(merged));
    }
  }
  add_alike(sides.now, single, candidates);
  for (const std::vector<const ListedStep*>& together : steps_together(sides.then)) {
    if (auto all = sides.restoring(together)) candidates.push_back(std::move(*all));
  }
  return candidates;
}

}  // namespace lockstep::diagnosis
