// SPDX-License-Identifier: Apache-2.0
#include "src/live/recorded_steps.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "src/base/at.h"

namespace lockstep::live {

namespace {

/// Steps of one parameter in its order, each with its place in the run.
using OwnSteps = std::vector<std::pair<SharedStep, std::size_t>>;

OwnSteps steps_of(const Recording& recording, const std::vector<LocalSteps>& local_steps, int parameter, int sequence) {
  const std::vector<ParameterCall>& met = recording.calls.of_parameter[at(parameter)];
  const std::size_t tail = calls_in_loop(recording, parameter);
  OwnSteps own;
  bool owned = false;
  std::map<SharedStep, int> times;
  for (std::size_t i = 0; i < met.size(); ++i) {
    const GradientCall& call = recording.calls.calls[at(met[i].call)];
    if (call.scales() && !local_steps[at(parameter)].as_seen) continue;
    SharedStep step;
    step.call = met[i].call;
    step.in_tail = i >= tail;
    step.passes = met[i].passes;
    step.in_backward = met[i].in_backward;
    step.aside = local_steps[at(parameter)].aside;
    if (i == tail) owned = false;
    step.owned = owned && !met[i].whole && call.op != "all_gather";
    if (call.op == "reduce_scatter") step.cut = recording.cuts[at(parameter)];
    owned = owned || call.op == "reduce_scatter";
    step.sequence = sequence;
    step.occurrence = times[step]++;
    own.emplace_back(std::move(step), met[i].order);
  }
  return own;
}

}  // namespace

SharedSteps shared_steps(const Recording& recording, const std::vector<LocalSteps>& local_steps,
                         const std::vector<int>& parameters) {
  std::map<SharedStep, std::size_t> common;  // where each comes first in the run
  for (const int parameter : parameters) {
    for (const auto& [step, order] : steps_of(recording, local_steps, parameter, -1)) {
      const auto [found, is_new] = common.try_emplace(step, order);
      if (!is_new) found->second = std::min(found->second, order);
    }
  }
  struct Placed {
    std::size_t order = SIZE_MAX;
    std::vector<int> parameters;
  };
  std::map<SharedStep, Placed> placed;
  // Where the common order is not that of a parameter, its steps are its own, and those of others that go like it.
  std::map<std::vector<SharedStep>, int> sequences;
  for (const int parameter : parameters) {
    OwnSteps own = steps_of(recording, local_steps, parameter, -1);
    const bool ordered = std::is_sorted(own.begin(), own.end(), [&](const auto& a, const auto& b) {
      if (a.first.in_tail != b.first.in_tail) return b.first.in_tail;
      return common.at(a.first) < common.at(b.first);
    });
    if (!ordered) {
      std::vector<SharedStep> sequence;
      for (const auto& [step, order] : own) sequence.push_back(step);
      const int number = sequences.try_emplace(std::move(sequence), static_cast<int>(sequences.size())).first->second;
      own = steps_of(recording, local_steps, parameter, number);
    }
    for (const auto& [step, order] : own) {
      Placed& one = placed[step];
      one.order = std::min(one.order, ordered ? common.at(step) : order);
      one.parameters.push_back(parameter);
    }
  }
  std::vector<std::pair<std::size_t, const SharedStep*>> order;
  order.reserve(placed.size());
  for (const auto& [step, one] : placed) order.emplace_back(one.order, &step);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.first < b.first || (a.first == b.first && *a.second < *b.second);
  });
  SharedSteps steps;
  for (const auto& [first, step] : order)
    (step->in_tail ? steps.tail : steps.each).push_back({*step, std::move(placed.at(*step).parameters)});
  return steps;
}

int most_micro_batches(const Recording& recording) {
  return *std::max_element(recording.micro_batches.begin(), recording.micro_batches.end());
}

std::size_t calls_in_loop(const Recording& recording, int parameter) {
  const std::vector<ParameterCall>& met = recording.calls.of_parameter[at(parameter)];
  const int most = most_micro_batches(recording);
  std::size_t tail = met.size();
  while (tail > 0 && met[tail - 1].passes == std::set<int>{most - 1} && (most > 1 || !met[tail - 1].in_backward))
    --tail;
  return tail;
}

}  // namespace lockstep::live
