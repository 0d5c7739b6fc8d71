// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "lockstep/operation.h"
#include "src/diagnosis/candidates.h"
#include "src/diagnosis/longest_run.h"
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

/// Of those of `names` that stand in `now`, as many as stand there in the order that they have here.
std::set<std::string> those_that_stay(const std::vector<std::string>& names, const std::vector<std::string>& now) {
  std::map<std::string, std::size_t> places;
  for (std::size_t at = 0; at < now.size(); ++at) places.emplace(now[at], at);
  std::vector<std::size_t> common;  // places in `now`, in the order of `names`
  for (const std::string& name : names) {
    if (const auto found = places.find(name); found != places.end()) common.push_back(found->second);
  }
  const std::vector<bool> in_run = in_longest_run(common);
  std::set<std::string> stay;
  for (std::size_t at = 0; at < common.size(); ++at) {
    if (in_run[at]) stay.insert(now[common[at]]);
  }
  return stay;
}

std::vector<std::string> names_in(const std::vector<ListedStep>& list, const std::string& each) {
  std::vector<std::string> names;
  for (const ListedStep& step : list) {
    if (step.each == each && !step.name().empty()) names.push_back(step.name());
  }
  return names;
}

/// Edits one behind the other, as one.
class Together {
 public:
  void add(const std::string& step, Edit edit) {
    Candidate one{Candidate::Kind::restore, step, std::move(edit)};
    if (all_) {
      all_->together.push_back(std::move(one));
    } else {
      all_ = std::move(one);
    }
  }
  std::optional<Candidate> take() { return std::move(all_); }

 private:
  std::optional<Candidate> all_;
};

/// Puts the steps of one list into their order, each behind the one before it or in front of the first that stays.
void restore_list(const Sides& sides, const std::string& each, Together& all) {
  const std::vector<std::string> names = names_in(sides.then, each);
  const std::vector<std::string> there = names_in(sides.now, each);
  if (there.empty()) return;  // nothing says where it begins
  const std::set<std::string> stay = those_that_stay(names, there);
  const auto first = std::find_if(names.begin(), names.end(), [&](const auto& name) { return stay.contains(name); });
  for (std::size_t at = 0; at < names.size(); ++at) {
    const std::string& name = names[at];
    const Step& step = *find_listed(sides.then, name)->step;
    const ListedStep* now = find_listed(sides.now, name);
    const bool after = at > 0;
    const std::string& beside = after ? names[at - 1] : first == names.end() ? there.front() : *first;
    if (now == nullptr) {
      all.add(name, Edit::insert(step, beside, after));
    } else if (!stay.contains(name)) {
      all.add(name, Edit::move(name, beside, after));
    }
    if (now == nullptr) continue;
    if (std::optional<Edit> change = changing(*now->step, step)) all.add(name, std::move(*change));
  }
}

/// Whether each parameter is chosen by a step.
std::vector<bool> chosen_by(const Step& step, const std::vector<Parameter>& parameters) {
  const ActingStep acting(step);
  std::vector<bool> chosen;
  for (const Parameter& parameter : parameters) chosen.push_back(acting.acts_on(parameter));
  return chosen;
}

bool share(const std::vector<bool>& one, const std::vector<bool>& other) {
  for (std::size_t at = 0; at < one.size(); ++at) {
    if (one[at] && other[at]) return true;
  }
  return false;
}

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

std::vector<Candidate> restoring_edits(const std::vector<Step>& steps, const std::vector<Step>& right,
                                       const std::vector<Parameter>& parameters) {
  const Sides sides{listed_steps(steps), listed_steps(right)};
  std::vector<Candidate> candidates;
  struct Changed {
    Op op;
    std::vector<bool> parameters;  // by index, as it is right
  };
  std::map<std::size_t, Changed> changed;  // by candidate
  for (std::size_t index = 0; index < sides.then.size(); ++index) {
    const ListedStep& then = sides.then[index];
    if (then.name().empty()) continue;
    std::optional<Candidate> one = sides.restoring(index, place_in(sides.now, sides.then, index));
    if (!one) continue;
    const ListedStep* now = find_listed(sides.now, then.name());
    if (now != nullptr && now->op() != Op::backward)
      changed.emplace(candidates.size(), Changed{now->op(), chosen_by(*then.step, parameters)});
    candidates.push_back(std::move(*one));
  }
  const std::size_t single = candidates.size();
  for (const ListedStep& added : sides.now) {
    if (added.name().empty() || find_listed(sides.then, added.name()) != nullptr) continue;
    candidates.push_back({Candidate::Kind::restore, added.name(), Edit::drop(added.name())});
    const std::vector<bool> chosen = chosen_by(*added.step, parameters);
    for (const auto& [at, step] : changed) {
      if (step.op != added.op() || !share(step.parameters, chosen)) continue;
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

std::optional<Candidate> all_back(const std::vector<Step>& steps, const std::vector<Step>& right) {
  const Sides sides{listed_steps(steps), listed_steps(right)};
  Together all;
  // A list before those inside of its steps: what moves into another one must find that there.
  restore_list(sides, "", all);
  for (const ListedStep& step : sides.then) {
    const bool is_new = find_listed(sides.now, step.name()) == nullptr;
    if (step.op() == Op::each && !step.name().empty() && !is_new) restore_list(sides, step.name(), all);
  }
  const auto is_added = [&](const std::string& name) {
    return !name.empty() && find_listed(sides.then, name) == nullptr;
  };
  for (const ListedStep& step : sides.now) {
    if (is_added(step.name()) && !is_added(step.each)) all.add(step.name(), Edit::drop(step.name()));
  }
  return all.take();
}

}  // namespace lockstep::diagnosis
