// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/kept_norms.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/diagnostic.h"
#include "lockstep/timeline.h"
#include "src/base/at.h"
#include "src/diagnosis/step_list.h"
#include "src/diagnosis/workload.h"

namespace lockstep::diagnosis {

namespace {

std::vector<ActingStep> steps_of_op(const Schedule& schedule, Op op) {
  std::vector<ActingStep> steps;
  for (const ListedStep& step : listed_steps(schedule.steps)) {
    if (step.op() == op) steps.emplace_back(*step.step);
  }
  return steps;
}

/// What norms count and clips change in a run, and in which optimizer step.
using Guarded = std::set<std::tuple<int, Op, std::string>>;

Guarded guarded_in(const Schedule& schedule) {
  Guarded guarded;
  const Timeline run = walk(schedule, AtRace::waits);
  for (const Event& event : run.events) {
    if (event.op != Op::norm && event.op != Op::clip) continue;
    for (const Call& call : event.calls) {
      for (std::size_t position = 0; position < call.buffers->size(); ++position) {
        if (!call.owned.empty() && call.owned[position].empty()) continue;
        const LocalBuffer& buffer = schedule.model.local(call.rank).buffers[at((*call.buffers)[position])];
        if (event.op == Op::norm) {  // of what is tied one copy
          const std::vector<Logical>& logicals = schedule.model.logicals();
          guarded.emplace(call.optimizer_step, event.op, logicals[at(logicals[at(buffer.logical)].original)].name);
          continue;
        }
        for (const int parameter : buffer.parameters)
          guarded.emplace(call.optimizer_step, event.op, schedule.model.parameters()[at(parameter)].name);
      }
    }
  }
  return guarded;
}

}  // namespace

bool says_norms(const Schedule& before, const Schedule& after) {
  const std::vector<Parameter>& parameters = before.model.parameters();
  // A norm counts one copy of what is tied; a clip changes each.
  std::vector<std::vector<int>> counted(before.model.logicals().size()), clipped;
  for (const Logical& logical : before.model.logicals()) {
    for (const int parameter : logical.parameters) {
      if (parameters[at(parameter)].frozen) continue;
      counted[at(logical.original)].push_back(parameter);
      clipped.push_back({parameter});
    }
  }
  for (const auto& [op, all] : {std::pair(Op::norm, &counted), {Op::clip, &clipped}}) {
    const std::vector<ActingStep> those_before = steps_of_op(before, op), those_after = steps_of_op(after, op);
    const auto acts_on = [&](const std::vector<ActingStep>& steps, int parameter) {
      return std::any_of(steps.begin(), steps.end(),
                         [&](const ActingStep& step) { return step.acts_on(parameters[at(parameter)]); });
    };
    for (const std::vector<int>& together : *all) {
      const auto any = [&](const std::vector<ActingStep>& steps) {
        return std::any_of(together.begin(), together.end(), [&](int parameter) { return acts_on(steps, parameter); });
      };
      if (any(those_before) && !any(those_after)) return false;
    }
  }
  return true;
}

bool runs_norms(const Schedule& before, const Schedule& after) {
  const Guarded then = guarded_in(before);
  if (then.empty()) return true;
  const Guarded now = guarded_in(after);
  return std::includes(now.begin(), now.end(), then.begin(), then.end());
}

std::optional<bool> keeps_norms(const Schedule& before, const Schedule& after) {
  if (!says_norms(before, after)) return false;
  if (!is_quickly_replayed(before) || !is_quickly_replayed(after)) return std::nullopt;
  try {
    return runs_norms(before, after);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace lockstep::diagnosis
