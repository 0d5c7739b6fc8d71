// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/kept_norms.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
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
  for (const Op op : {Op::norm, Op::clip}) {
    const std::vector<ActingStep> those_before = steps_of_op(before, op), those_after = steps_of_op(after, op);
    for (const Parameter& parameter : parameters) {
      const auto acts = [&](const ActingStep& step) { return step.acts_on(parameter); };
      if (parameter.frozen || std::none_of(those_before.begin(), those_before.end(), acts)) continue;
      if (std::none_of(those_after.begin(), those_after.end(), acts)) return false;
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
