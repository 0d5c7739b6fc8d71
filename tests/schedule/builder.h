// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/timeline.h"

namespace lockstep::test {

inline Parameter parameter(const std::string& name, std::vector<std::int64_t> shape) {
  Parameter result;
  result.name = name;
  result.shape = std::move(shape);
  return result;
}

inline Over over(Axis axis) { return Over{{{axis, std::nullopt}}}; }

inline Step step(Op op, const std::string& name) {
  Step result;
  result.op = op;
  result.name = name;
  return result;
}

inline Step collective(Op op, const std::string& name, Axis axis) {
  Step result = step(op, name);
  result.over = over(axis);
  return result;
}

/// backward of every micro-batch.
inline Step backwards() {
  Step each = step(Op::each, "micro_batches");
  each.steps.push_back(step(Op::backward, "backward"));
  return each;
}

inline Step when(Step step, const std::string& condition) {
  step.when = Expression::parse(condition);
  return step;
}

inline Schedule schedule_of(const Layout& layout, std::vector<Parameter> parameters, std::vector<Step> steps,
                            int micro_batches = 1, int optimizer_steps = 1) {
  const Mesh mesh(layout);
  Diagnostics diagnostics;
  Model model(mesh, std::move(parameters), diagnostics);
  if (!diagnostics.empty()) throw std::logic_error(diagnostics.sorted().front().message);
  Schedule result{mesh, std::move(model), {}, std::move(steps), "grad"};
  result.batch.micro_batch_counts.assign(static_cast<std::size_t>(optimizer_steps), micro_batches);
  return result;
}

inline Layout dp(int size) {
  Layout layout;
  layout.dp = layout.dp_shard = size;
  return layout;
}

}  // namespace lockstep::test
