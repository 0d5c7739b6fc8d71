// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "src/diagnosis/candidates.h"
#include "src/diagnosis/step_list.h"
#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

namespace {

/// The selection of a step with one selector more.
Step narrowed(Step step, const std::string& selector) {
  std::vector<std::string> items = step.params.items();
  std::erase(items, "*");
  items.push_back(selector);
  scenario::set_key(step, "params", scenario::with({}, "params", &Step::params, Selectors(std::move(items))));
  return step;
}

/// Whether one selector more narrows the selection: of a list any that matches chooses.
bool can_be_narrowed(const Selectors& selection) {
  return std::all_of(selection.items().begin(), selection.items().end(),
                     [](const std::string& item) { return item == "*" || Selectors::excludes(item); });
}

}  // namespace

std::vector<Candidate> norm_splits(const std::vector<Step>& steps, const CandidateValues& values) {
  const std::vector<ListedStep> list = listed_steps(steps);
  std::vector<Candidate> candidates;
  for (const ListedStep& norm : list) {
    if (norm.op() != Op::norm || norm.name().empty() || norm.step->count || !can_be_narrowed(norm.step->params))
      continue;
    for (const std::string& axis : values.mixed_axes) {
      Step sharded = narrowed(*norm.step, "shard:" + axis), whole = narrowed(*norm.step, "!shard:" + axis);
      whole.name = norm.name() + "_replicated";
      if (find_listed(list, whole.name) != nullptr) continue;
      whole = scenario::with(std::move(whole), "count", &Step::count,
                             std::optional(Expression::parse(fmt::format("rank.{} == 0", axis))));
      Step keys = scenario::with({}, "params", &Step::params, sharded.params);
      candidates.push_back({Candidate::Kind::parameters, norm.name(), Edit::set(norm.name(), std::move(keys))});
      candidates.back().together = {
          {Candidate::Kind::insert, whole.name, Edit::insert(std::move(whole), norm.name(), true)}};
    }
  }
  return candidates;
}

}  // namespace lockstep::diagnosis
