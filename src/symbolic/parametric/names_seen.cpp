// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/names_seen.h"

#include <fmt/format.h>

#include <cctype>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "src/schedule/selector_list.h"
#include "src/symbolic/parametric/world.h"

namespace lockstep::parametric {

namespace {

std::string without_numbers(const std::string& name) {
  std::string result;
  for (const char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit) result += c;
    if (digit && (result.empty() || result.back() != '#')) result += '#';
  }
  return result;
}

/// By kind, which is a name without its numbers: the names.
using NamesByKind = std::map<std::string, std::set<std::string>>;

NamesByKind names_of(const Schedule& schedule) {
  NamesByKind names;
  for (const Parameter& parameter : schedule.model.parameters())
    names[without_numbers(parameter.name)].insert(parameter.name);
  return names;
}

/// The kinds of which not every schedule has the same.
std::set<std::string> varying_kinds(const std::vector<std::shared_ptr<const Schedule>>& schedules) {
  std::set<std::string> varying;
  const NamesByKind first = names_of(*schedules.front());
  for (std::size_t i = 1; i < schedules.size(); ++i) {
    NamesByKind others = names_of(*schedules[i]);
    for (const auto& [kind, names] : first) {
      if (others[kind] != names) varying.insert(kind);
    }
    for (const auto& [kind, names] : others) {
      if (!first.contains(kind)) varying.insert(kind);
    }
  }
  return varying;
}

/// A parameter of a kind of which not every schedule has the same.
struct Varying {
  const Parameter* parameter;
  std::string kind;
};

std::vector<Varying> varying_of(const Model& model, const std::set<std::string>& kinds) {
  std::vector<Varying> result;
  for (const Parameter& parameter : model.parameters()) {
    std::string kind = without_numbers(parameter.name);
    if (kinds.contains(kind)) result.push_back({&parameter, std::move(kind)});
  }
  return result;
}

void require_all_or_none(const Step& step, const std::vector<std::string>& items,
                         const std::vector<Varying>& parameters) {
  const schedule::SelectorList selectors(items);
  std::map<std::string, bool> chosen;
  for (const auto& [parameter, kind] : parameters) {
    const bool chooses = selectors.chooses(*parameter, parameter->numel());
    if (chosen.try_emplace(kind, chooses).first->second == chooses) continue;
    throw OutOfReach(step.name, fmt::format("it chooses some of the parameters \"{}\", and how many of them there are "
                                            "depends on sizes that are open",
                                            kind));
  }
}

void require_all_or_none(const std::vector<Step>& steps, const std::vector<Varying>& parameters) {
  for (const Step& step : steps) {
    if (!step.params.items().empty()) require_all_or_none(step, step.params.items(), parameters);
    if (step.geometry->separate) require_all_or_none(step, step.geometry->separate->items(), parameters);
    require_all_or_none(step.steps, parameters);
  }
}

}  // namespace

void NamesSeen::add(std::shared_ptr<const Schedule> schedule) { schedules_.push_back(std::move(schedule)); }

void NamesSeen::require_all() const {
  if (schedules_.size() < 2) return;
  const std::set<std::string> varying = varying_kinds(schedules_);
  if (varying.empty()) return;
  for (const auto& schedule : schedules_) require_all_or_none(schedule->steps, varying_of(schedule->model, varying));
}

}  // namespace lockstep::parametric
