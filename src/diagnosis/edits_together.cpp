// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "src/diagnosis/candidates.h"
#include "src/diagnosis/step_list.h"
#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

namespace {

using StepsTogether = std::vector<const ListedStep*>;

/// Whether a "set" changes what steps that belong together have in common, and nothing else.
bool sets_what_is_common(const Edit& edit) {
  const auto is_common = [](std::string_view key) {
    return key == "params" || key == "when" || key == "only" || key == "buffer";
  };
  return edit.action == Edit::Action::set && std::all_of(edit.values.keys.begin(), edit.values.keys.end(), is_common) &&
         std::all_of(edit.removed.begin(), edit.removed.end(), is_common);
}

Candidate of_step(Candidate candidate, const std::string& step) {
  candidate.step = candidate.edit.step.name = step;
  candidate.together.clear();
  return candidate;
}

/// What an edit of the first of the steps is for all of them.
Candidate for_all(const StepsTogether& steps, const Candidate& of_first) {
  Candidate all = of_first;
  for (std::size_t at = 1; at < steps.size(); ++at) {
    const std::string& name = steps[at]->name();
    all.together.push_back(of_step(of_first, name));
    Edit& edit = all.together.back().edit;
    if (edit.action == Edit::Action::move) edit = Edit::move(name, steps[at - 1]->name(), true);
    for (const Candidate& other : of_first.together) all.together.push_back(of_step(other, name));
  }
  return all;
}

/// Whether an edit of one step can be made of others that do the same to other parameters.
bool is_for_all_alike(const Edit& edit) {
  const auto is_own = [](std::string_view key) { return key == "params" || key == "root" || key == "name"; };
  const auto none_is_own = [&](const std::vector<std::string_view>& keys) {
    return std::none_of(keys.begin(), keys.end(), is_own);
  };
  return edit.action == Edit::Action::move || (edit.action == Edit::Action::set && edit.step.iteration.empty() &&
                                               none_is_own(edit.values.keys) && none_is_own(edit.removed));
}

/// Of two steps of one op of which one takes what the other leaves out ("tag:norm" and "!tag:norm"), what changes
/// hands.
void add_changes_of_hands(const ListedStep& a, const ListedStep& b, std::vector<Candidate>& candidates) {
  if (a.op() != b.op() || a.each != b.each || a.name().empty() || b.name().empty()) return;
  const std::vector<std::string>&of_a = a.step->params.items(), &of_b = b.step->params.items();
  const auto without = [](const std::string& step, std::vector<std::string> items, const std::string& item) {
    std::erase(items, item);
    Step values = scenario::with({}, "params", &Step::params, Selectors(std::move(items)));
    return Candidate{Candidate::Kind::parameters, step, Edit::set(step, std::move(values))};
  };
  for (const std::string& item : of_a) {
    const std::string other = item.starts_with('!') ? item.substr(1) : "!" + item;
    if (of_a.size() < 2 || of_b.size() < 2 || std::find(of_b.begin(), of_b.end(), other) == of_b.end()) continue;
    candidates.push_back(without(a.name(), of_a, item));
    candidates.back().together.push_back(without(b.name(), of_b, other));
  }
}

/// Of two steps of one op of which one acts on what the other leaves out: that other one acts on all of it.
void add_merges(const std::vector<ListedStep>& list, std::vector<Candidate>& candidates) {
  for (const ListedStep& one : list) {
    for (const ListedStep& other : list) {
      std::optional<Candidate> merged = merged_into(one, other);
      if (!merged) continue;
      merged->together.push_back({Candidate::Kind::drop, other.name(), Edit::drop(other.name())});
      candidates.push_back(std::move(*merged));
    }
  }
}

/// Whether `later` gives the same step other values of all keys that `edit` sets.
bool is_overridden(const Edit& edit, const Edit& later) {
  if (edit.action != Edit::Action::set || later.action != Edit::Action::set ||
      edit.step.to_string() != later.step.to_string())
    return false;
  const auto are_said = [&](const std::vector<std::string_view>& keys) {
    return std::all_of(keys.begin(), keys.end(), [&](std::string_view key) {
      return std::ranges::count(later.values.keys, key) + std::ranges::count(later.removed, key) > 0;
    });
  };
  return are_said(edit.values.keys) && are_said(edit.removed);
}

void erase_edit(std::vector<Candidate>& list, std::size_t at) {
  const auto one = list.begin() + static_cast<std::ptrdiff_t>(at);
  // What went with it goes on in its place.
  if (!one->is_with_previous && one + 1 != list.end() && (one + 1)->is_with_previous)
    (one + 1)->is_with_previous = false;
  list.erase(one);
}

/// What a "set" changes of a step that an edit before it inserts, the insert says itself: a list inserts each step
/// once, in its last form.
void set_where_inserted(std::vector<Candidate>& list) {
  for (std::size_t at = list.size(); at-- > 0;) {
    const Edit& edit = list[at].edit;
    if (edit.action != Edit::Action::set || !edit.step.iteration.empty() || edit.changes("name")) continue;
    for (std::size_t before = at; before-- > 0;) {
      Edit& other = list[before].edit;
      if (other.action == Edit::Action::insert && other.values.name == edit.step.name) {
        for (const std::string_view key : edit.values.keys) scenario::set_key(other.values, key, edit.values);
        for (const std::string_view key : edit.removed) scenario::remove_key(other.values, key);
        erase_edit(list, at);
        break;
      }
      if (other.step.name == edit.step.name) break;
    }
  }
}

}  // namespace

std::optional<Candidate> merged_into(const ListedStep& one, const ListedStep& other) {
  if (one.op() != other.op() || one.name().empty() || other.name().empty()) return std::nullopt;
  const std::vector<std::string>& alone = other.step->params.items();
  std::vector<std::string> items = one.step->params.items();
  if (alone.size() != 1 || std::erase(items, "!" + alone.front()) == 0) return std::nullopt;
  Edit edit = items.empty() ? Edit::set(one.name(), {}, {"params"})
                            : Edit::set(one.name(), scenario::with({}, "params", &Step::params, Selectors(items)));
  return Candidate{Candidate::Kind::parameters, one.name(), std::move(edit)};
}

std::vector<Candidate> edits_together(const std::vector<Step>& steps, const std::vector<Candidate>& singles) {
  const std::vector<ListedStep> list = listed_steps(steps);
  std::vector<Candidate> candidates;
  std::map<std::string, std::vector<const Candidate*>> by_step;
  for (const Candidate& single : singles) by_step[single.step].push_back(&single);
  const auto add = [&](const std::vector<StepsTogether>& groups, bool (*is_common)(const Edit&)) {
    for (const StepsTogether& together : groups) {
      const auto is_one = [&](const std::string& name) {
        return std::any_of(together.begin(), together.end(),
                           [&](const ListedStep* step) { return step->name() == name; });
      };
      for (const Candidate* single : by_step[together.front()->name()]) {
        const bool moves = single->edit.action == Edit::Action::move;
        if (moves ? !is_one(single->edit.beside.name) : is_common(single->edit))
          candidates.push_back(for_all(together, *single));
      }
    }
  };
  add(steps_together(list), sets_what_is_common);
  add(steps_alike(list), is_for_all_alike);
  add_merges(list, candidates);
  for (std::size_t at = 1; at < list.size(); ++at) add_changes_of_hands(list[at - 1], list[at], candidates);
  return candidates;
}

std::vector<Candidate> two_keys_at_once(const std::vector<Candidate>& singles) {
  const auto reduces = [](const Candidate& one) {
    return one.edit.values.keys == std::vector<std::string_view>{"reduce"} && one.edit.removed.empty();
  };
  const auto takes_away = [](const Candidate& one) {
    return one.edit.action == Edit::Action::set && one.edit.values.keys.empty() && one.edit.removed.size() == 1 &&
           !one.edit.removed.front().starts_with("geometry");
  };
  std::map<std::string, std::vector<const Candidate*>> by_step;
  for (const Candidate& single : singles) {
    if (single.together.empty() && (reduces(single) || takes_away(single))) by_step[single.step].push_back(&single);
  }
  std::vector<Candidate> candidates;
  for (const auto& [step, list] : by_step) {
    for (const Candidate* one : list) {
      for (const Candidate* other : list) {
        if (!takes_away(*other) || (!reduces(*one) && other <= one)) continue;
        candidates.push_back(*one);
        candidates.back().edit.removed.push_back(other->edit.removed.front());
      }
    }
  }
  return candidates;
}

std::vector<Candidate> one_by_one(const std::vector<const Candidate*>& candidates) {
  std::vector<Candidate> list;
  for (const Candidate* candidate : candidates) {
    list.push_back(*candidate);
    for (Candidate& other : std::exchange(list.back().together, {})) {
      other.is_with_previous = true;
      list.push_back(std::move(other));
    }
  }
  for (std::size_t i = list.size(); i-- > 0;) {
    const auto one = list.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::none_of(one + 1, list.end(), [&](const Candidate& later) { return is_overridden(one->edit, later.edit); }))
      continue;
    erase_edit(list, i);
  }
  set_where_inserted(list);
  return list;
}

std::vector<const Edit*> edits_of(const std::vector<const Candidate*>& candidates) {
  std::vector<const Edit*> list;
  for (const Candidate* candidate : candidates) {
    list.push_back(&candidate->edit);
    for (const Candidate& other : candidate->together) list.push_back(&other.edit);
  }
  return list;
}

}  // namespace lockstep::diagnosis
