// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/resolved_steps.h"

#include <algorithm>
#include <functional>
#include <variant>

#include "lockstep/operation.h"
#include "src/base/at.h"
#include "src/base/budget.h"

namespace lockstep::diagnosis {

namespace {

std::string text_of_value(const ExpressionValue& value) {
  if (const auto* number = std::get_if<Rational>(&value)) return number->to_string();
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  return "'" + std::get<std::string>(value);
}

template <class Key>
int number_of(std::map<Key, int>& numbers, Key key) {
  return numbers.emplace(std::move(key), static_cast<int>(numbers.size())).first->second;
}

}  // namespace

ResolvedSteps::ResolvedSteps(const Schedule& schedule, schedule::WalkMemory& memory)
    : schedule_(&schedule), memory_(&memory), always_(Expression::parse("true")), once_(Expression::parse("1")) {
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    const LocalModel* local = &schedule.model.local(rank);
    if (std::find(locals_.begin(), locals_.end(), local) == locals_.end()) locals_.push_back(local);
  }
}

std::uint64_t ResolvedSteps::hash(const std::vector<Step>& steps) {
  hash_ = {};
  list_.clear();
  for (const Step& step : steps) {
    list_.push_back(&step);
    for (const Step& inner : step.steps) list_.push_back(&inner);
  }
  Budget::spend(static_cast<std::int64_t>(list_.size()));
  add(steps, false);
  return hash_.value();
}

void ResolvedSteps::add(const std::vector<Step>& steps, bool in_each) {
  for (const Step& step : steps) add(step, in_each);
  hash_.add(steps.size());
}

void ResolvedSteps::add(const Step& step, bool in_each) {
  const Operation& row = operation(step.op);
  hash_.add(static_cast<int>(step.op));
  for (const Only& only : step.only) {
    hash_.add(static_cast<int>(only.axis));
    hash_.add(only.coordinates);
  }
  hash_.add(step.only.size());
  add_values(step.when.value_or(always_), in_each);
  if (step.op == Op::each) return add(step.steps, true);
  if (step.op == Op::wait) {
    const auto waited =
        std::find_if(list_.begin(), list_.end(), [&](const Step* other) { return other->name == step.wait_for; });
    return hash_.add(waited - list_.begin());
  }
  hash_.add(selection(step.params));
  if (row.of_a_group()) hash_.add(groups(step.over));
  if (step.root) {
    hash_.add(step.root->position.value_or(-1));
    for (const auto& [axis, coordinate] : step.root->coordinates) {
      hash_.add(static_cast<int>(axis));
      hash_.add(coordinate);
    }
    hash_.add(step.root->coordinates.size());
  }
  hash_.add(step.root.has_value());
  add_values(step.by.value_or(once_), in_each);
  hash_.add(step.count);
  if (row.cuts != Operation::Cuts::nothing) add(*step.geometry);
  for (const std::string* text : {&step.buffer, &step.from, &step.what}) hash_.add(*text);
  hash_.add(step.uses);
  for (const bool flag :
       {step.reduction == Reduction::average, step.on_owned, step.async, step.per_rank, step.mean_of_norms})
    hash_.add(flag);
}

void ResolvedSteps::add(const Geometry& geometry) {
  hash_.add(static_cast<int>(geometry.kind));
  for (const auto* one : {&geometry.align, &geometry.size, &geometry.align_bucket}) hash_.add(*one);
  hash_.add(geometry.align_parameter.text());
  hash_.add(geometry.separate ? selection(*geometry.separate) : -1);
  hash_.add(geometry.counts);
}

void ResolvedSteps::add_values(const Expression& expression, bool in_each) {
  const auto [found, is_new] = values_.try_emplace({&expression.tree(), in_each}, expression, 0);
  if (is_new) found->second.second = std::hash<std::string>()(values_of(expression, in_each));
  hash_.add(found->second.second);
}

/// In each micro-batch of each optimizer step. As it is written where ranks differ in it, or it has no value.
std::string ResolvedSteps::values_of(const Expression& expression, bool in_each) const {
  if (expression.uses_rank()) return expression.text();
  Environment environment;
  environment.mesh = &schedule_->mesh;
  environment.counts = &schedule_->batch;
  environment.rank = 0;
  std::string text = "=";
  try {
    for (int step = 0; step < schedule_->batch.steps(); ++step) {
      environment.step = step;
      for (int micro_batch = 0; micro_batch < (in_each ? schedule_->batch.micro_batches(step) : 1); ++micro_batch) {
        if (in_each) environment.micro_batch = micro_batch;
        text += text_of_value(expression.evaluate(environment)) + ";";
      }
    }
  } catch (const ExpressionError&) {
    return expression.text();
  }
  return text;
}

int ResolvedSteps::selection(const Selectors& params) {
  const auto [found, is_new] = selections_.try_emplace(params.items(), 0);
  if (is_new) {
    std::vector<std::vector<int>> buffers;
    buffers.reserve(locals_.size());
    for (const LocalModel* local : locals_) buffers.push_back(memory_->selected(params, *local));
    found->second = number_of(selected_, std::move(buffers));
  }
  return found->second;
}

int ResolvedSteps::groups(const std::optional<Over>& over) {
  const std::vector<int>& of_rank = memory_->groups_of(over.value_or(Over{}));
  const auto [found, is_new] = groups_.try_emplace(&of_rank, 0);
  if (is_new) found->second = number_of(grouped_, of_rank);
  return found->second;
}

}  // namespace lockstep::diagnosis
