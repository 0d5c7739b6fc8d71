// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/step_list.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "lockstep/operation.h"
#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

namespace {

/// What steps that belong together have in common.
constexpr std::array<std::string_view, 4> keys_together = {"params", "when", "only", "buffer"};

/// One edit of each of them is a longer edit than anybody writes, and there are as many as places to move to.
constexpr std::size_t most_steps_alike = 16;

/// What of steps that do the same is each one's own.
constexpr std::array<std::string_view, 3> keys_of_each = {"name", "params", "root"};

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

std::vector<std::vector<const ListedStep*>> steps_together(const std::vector<ListedStep>& list) {
  const auto reduces = [](const ListedStep& one) { return one.step->over && operation(one.op()).reduces(); };
  const auto goes_with = [](const ListedStep& a, const ListedStep& b) {
    return a.each == b.each && std::all_of(keys_together.begin(), keys_together.end(), [&](std::string_view key) {
             return scenario::step_key(key).same(*a.step, *b.step);
           });
  };
  std::vector<std::vector<const ListedStep*>> found;
  std::vector<const ListedStep*> run;
  const auto end = [&] {
    const bool any = std::any_of(run.begin(), run.end(), [&](const ListedStep* one) { return reduces(*one); });
    if (any && run.size() > 1) found.push_back(run);
    run.clear();
  };
  for (const ListedStep& one : list) {
    const bool fits = !one.name().empty() && (one.op() == Op::scale || reduces(one));
    const bool again =
        reduces(one) && std::any_of(run.begin(), run.end(), [&](const ListedStep* other) { return reduces(*other); });
    if (!run.empty() && (!fits || again || !goes_with(*run.back(), one))) end();
    if (fits) run.push_back(&one);
  }
  end();
  return found;
}

std::vector<std::vector<const ListedStep*>> steps_alike(const std::vector<ListedStep>& list) {
  const auto in_common = [](const ListedStep& one) {
    Step step = *one.step;
    for (const std::string_view key : keys_of_each) scenario::remove_key(step, key);
    return one.each + "\n" + write_json(scenario::as_written(step));
  };
  std::vector<std::vector<const ListedStep*>> found;
  std::map<std::string, std::size_t> groups;
  for (const ListedStep& one : list) {
    if (one.name().empty() || !operation(one.op()).collective) continue;
    const auto [group, is_new] = groups.try_emplace(in_common(one), found.size());
    if (is_new) found.emplace_back();
    found[group->second].push_back(&one);
  }
  std::erase_if(found, [](const std::vector<const ListedStep*>& group) {
    return group.size() < 2 || group.size() > most_steps_alike;
  });
  return found;
}

bool is_before_contributions(const std::vector<ListedStep>& list, const ListedStep& step, bool after) {
  if (!step.each.empty()) return false;
  const auto first = std::find_if(list.begin(), list.end(), [](const ListedStep& one) {
    return operation(one.op()).adds == Operation::Adds::gradient;
  });
  const auto own = list.begin() + (&step - list.data());
  if (!after) return own <= first;
  if (own >= first) return false;
  // It may be a loop, with the contribution in it.
  return first == list.end() || std::any_of(own + 1, first, [](const ListedStep& one) { return one.each.empty(); });
}

bool is_written(const std::vector<ListedStep>& list, const std::string& buffer, const std::string& result,
                const Parameter& parameter) {
  return buffer == result || std::any_of(list.begin(), list.end(), [&](const ListedStep& one) {
           return one.step->buffer == buffer && operation(one.op()).adds != Operation::Adds::nothing &&
                  ActingStep(*one.step).acts_on(parameter);
         });
}

ActingStep::ActingStep(const Step& step) : uses_(step.uses), params_(step.params.items()) {}

bool ActingStep::acts_on(const Parameter& parameter) const {
  const bool used = uses_.empty() || std::any_of(uses_.begin(), uses_.end(), [&](const std::string& use) {
                      return std::find(parameter.uses.begin(), parameter.uses.end(), use) != parameter.uses.end();
                    });
  return used && params_.chooses(parameter, parameter.numel());
}

}  // namespace lockstep::diagnosis
