// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "lockstep/numeric.h"
#include "src/numeric/exactness.h"
#include "src/numeric/generator.h"

namespace lockstep::test {

/// A coefficient and the key of an unknown.
using Formula = std::vector<std::pair<double, std::uint64_t>>;

/// The unknown that rank `source` names in the only use of a parameter.
inline std::uint64_t g(int source, int micro_batch = 0, int logical = 0) {
  return numeric::gradient_key(logical, source, micro_batch, 0);
}

/// What the engine decided about the family of a logical parameter.
inline numeric::Choice choice_of(const Schedule& schedule, const Timeline& timeline, int logical = 0) {
  const numeric::Components components = numeric::find_components(schedule, timeline);
  const numeric::Planner planner(schedule, timeline, components);
  numeric::Need need;
  for (const numeric::Component& component : components.list) {
    if (component.family == logical) need.join(numeric::find_need(planner.plan(component)));
  }
  return numeric::choose_arithmetic(schedule.model.logicals()[static_cast<std::size_t>(logical)].dtype, need);
}

/// Hash of elements of an unsharded float32 parameter that hold the value of a formula.
inline GradientHash hash_of(const Formula& formula, const Intervals& elements, const numeric::Choice& choice) {
  GradientHash result;
  for (const Interval& interval : elements) {
    const auto count = static_cast<std::size_t>(interval.size());
    const auto first = static_cast<std::uint64_t>(interval.begin);
    std::vector<double> sums(count, 0.0);
    std::vector<std::int32_t> numbers(count);
    for (const auto& [coefficient, key] : formula) {
      numeric::generate(key, choice.bits, first, count, numbers.data());
      for (std::size_t i = 0; i < count; ++i) sums[i] += coefficient * numbers[i];
    }
    const double multiple = static_cast<double>(*choice.multiple.to_int64());
    std::vector<float> values;
    for (const double sum : sums) values.push_back(static_cast<float>(std::round(sum * multiple * 4096) / 4096));
    result += hash_elements(values.data(), count, first);
  }
  return result;
}

}  // namespace lockstep::test
