// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/named_coordinates.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "src/expression/node.h"

namespace lockstep::parametric {

namespace {

using Visit = std::function<void(const NamedCoordinates&)>;
using Kind = Expression::Node::Kind;

bool is_comparison(const Expression::Node& node) {
  constexpr std::string_view arithmetic[] = {"+", "-", "*", "/", "and", "or"};
  return node.kind == Kind::binary &&
         std::find(std::begin(arithmetic), std::end(arithmetic), node.text) == std::end(arithmetic);
}

/// The whole number that has the value of an expression, or is the next below; none where ranks decide about it.
std::optional<int> whole_value(const Expression::Node& node, const Environment& environment) {
  constexpr std::int64_t most = 1 << 20;  // more ranks no axis has
  try {
    const ExpressionValue value = expression::evaluate(node, environment);
    if (const auto* number = std::get_if<Rational>(&value))
      return static_cast<int>(std::clamp(number->floor().to_int64().value_or(most), std::int64_t{-1}, most));
  } catch (const ExpressionError&) {
    // The evaluator of the proof says where it cannot be followed.
  }
  return std::nullopt;
}

/// What rank.AXIS is compared with. First and last have names of their own.
void visit_expression(const Expression::Node& node, const Environment& environment, const Visit& visit) {
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const Expression::Node& child = *node.children[i];
    if (child.kind == Kind::rank_axis) {
      const Expression::Node* other = is_comparison(node) ? node.children[1 - i].get() : nullptr;
      if (other != nullptr && other->kind == Kind::end) {
        visit({child.axis, {}, true, false});
        continue;
      }
      const std::optional<int> whole = other == nullptr ? std::nullopt : whole_value(*other, environment);
      visit({child.axis, whole ? std::vector<int>{*whole} : std::vector<int>{}, true, !whole});
    }
    visit_expression(child, environment, visit);
  }
}

void visit_expression(const Expression& expression, const Environment& environment, const Visit& visit) {
  if (expression.tree().kind == Kind::rank_axis) visit({expression.tree().axis, {}, true, true});
  visit_expression(expression.tree(), environment, visit);
}

void visit_step(const Step& step, const Environment& environment, const Visit& visit) {
  for (const Only& only : step.only) visit({only.axis, only.coordinates, false, false});
  if (step.over) {
    for (const Over::Pick& pick : step.over->picks) {
      if (pick.coordinates) visit({pick.axis, *pick.coordinates, false, false});
    }
  }
  if (step.root) {
    for (const auto& [axis, coordinate] : step.root->coordinates) visit({axis, {coordinate}, false, false});
    if (step.root->position) visit({std::nullopt, {*step.root->position}, false, false});
  }
  for (const auto* expression : {&step.by, &step.when, &step.count}) {
    if (*expression) visit_expression(**expression, environment, visit);
  }
  for (const Step& inner : step.steps) visit_step(inner, environment, visit);
}

Environment environment_of(const Schedule& schedule) {
  Environment environment;
  environment.mesh = &schedule.mesh;
  environment.counts = &schedule.batch;
  return environment;
}

void visit_loss(const Schedule& schedule, const Environment& environment, const Visit& visit) {
  for (const auto& [use, loss] : schedule.batch.loss_of_use) {
    if (loss.kind == Loss::Kind::weight) visit_expression(loss.weight, environment, visit);
  }
}

}  // namespace

void visit_named(const Schedule& schedule, const Visit& visit) {
  const Environment environment = environment_of(schedule);
  for (const Step& step : schedule.steps) visit_step(step, environment, visit);
  visit_loss(schedule, environment, visit);
}

bool tells_stages_apart(const Schedule& schedule) {
  return loss_tells_stages_apart(schedule) ||
         std::any_of(schedule.steps.begin(), schedule.steps.end(),
                     [&](const Step& step) { return tells_stages_apart(schedule, step); });
}

bool loss_tells_stages_apart(const Schedule& schedule) {
  bool found = false;
  visit_loss(schedule, environment_of(schedule),
             [&](const NamedCoordinates& named) { found = found || named.axis == Axis::pp; });
  return found;
}

bool tells_stages_apart(const Schedule& schedule, const Step& step) {
  // A position in a group of one stage is not one of the stage.
  const bool over_stages = step.over && std::any_of(step.over->picks.begin(), step.over->picks.end(),
                                                    [](const Over::Pick& pick) { return pick.axis == Axis::pp; });
  bool found = false;
  visit_step(step, environment_of(schedule), [&](const NamedCoordinates& named) {
    found = found || (named.axis ? *named.axis == Axis::pp : over_stages || !step.steps.empty());
  });
  return found;
}

}  // namespace lockstep::parametric
