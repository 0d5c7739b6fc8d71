// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/kind_of_mistake.h"

#include <algorithm>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "lockstep/symbolic.h"
#include "src/diagnosis/other_tests.h"
#include "src/scenario/value_type.h"

namespace lockstep::diagnosis {

namespace {

const Step* find_step(const std::vector<Step>& steps, const std::string& name) {
  for (const Step& step : steps) {
    if (step.name == name) return &step;
    if (const Step* inside = find_step(step.steps, name)) return inside;
  }
  return nullptr;
}

bool is_reduction(Op op) { return operation(op).value == Operation::Value::reduction; }

/// What an edit says of the mistake by itself. `right` is the scenario without it.
std::optional<Mistake> kind_of_edit(const Edit& edit, const Schedule& right) {
  const auto reduces = [&] {
    const Step* step = find_step(right.steps, edit.step.name);
    return step != nullptr && is_reduction(step->op);
  };
  switch (edit.action) {
    case Edit::Action::drop:
      if (reduces()) return Mistake::missing_reduction;
      break;
    case Edit::Action::duplicate:
      if (reduces()) return Mistake::extra_reduction;
      break;
    case Edit::Action::insert:
      if (is_reduction(edit.values.op)) return Mistake::extra_reduction;
      break;
    case Edit::Action::move:
      return Mistake::wrong_place;
    case Edit::Action::set:
      if (edit.changes("over") || edit.changes("root")) return Mistake::wrong_group;
      if (edit.changes("geometry")) return Mistake::wrong_cut;
      break;
    case Edit::Action::parameter:
      for (const Json::Member& value : edit.parameter_values) {
        if (scenario::contains_word("partial shard dispatch tied copy stage", value.key))
          return Mistake::wrong_placement;
      }
      break;
  }
  return std::nullopt;
}

std::optional<Mistake> kind_by_edits(const CheckResult& result) {
  const std::vector<Edit>& edits = result.scenario->edits;
  // One of so many would say little, and each means another check.
  constexpr std::size_t most_edits = 32;
  if (edits.size() > most_edits) return std::nullopt;
  for (std::size_t index = 0; index < edits.size(); ++index) {
    // Null where the others need it, or where it is what makes the file valid.
    const auto right = read_if_allowed(*result.scenario, {.left_out = {index}});
    if (right == nullptr || check_scenario(right, CheckOptions::verdict_alone()).verdict != Verdict::match) continue;
    return kind_of_edit(edits[index], *right->schedule);
  }
  return std::nullopt;
}

}  // namespace

Mistake kind_of_content(const std::vector<Difference>& contents, bool unowned) {
  const auto any = [&](auto condition) { return std::any_of(contents.begin(), contents.end(), condition); };
  if (any([](const Difference& one) { return one.leftover; })) return Mistake::leftover;
  if (any([](const Difference& one) { return one.foreign; })) return Mistake::wrong_cut;
  if (unowned) return Mistake::no_owner;
  if (contents.empty()) return Mistake::wrong_values;
  if (any([](const Difference& one) { return one.missing; })) return Mistake::missing_reduction;
  if (any([](const Difference& one) { return one.left_out || one.least != one.most; })) return Mistake::wrong_weights;
  if (any([](const Difference& one) { return one.least && !one.least->is_one(); })) return Mistake::wrong_factor;
  // A norm is another one as soon as any gradient is wrong: clipping is the mistake where nothing else is.
  if (any([](const Difference& one) { return one.clips; })) return Mistake::clipping;
  return Mistake::wrong_factor;
}

Mistake kind_of_mistake(const CheckResult& result) {
  if (wrong_in_model_alone(result)) return Mistake::in_the_model;
  if (result.verdict == Verdict::deadlock) return Mistake::deadlock;
  if (result.verdict == Verdict::invalid_collective) return Mistake::invalid_collective;
  if (result.verdict == Verdict::race) return Mistake::race;
  if (wrong_in_norm_alone(result)) return Mistake::norm_count;
  const std::optional<Mistake> edited = kind_by_edits(result);
  if (edited) return *edited;
  const SymbolicResult* exact = exact_of(result);
  return kind_of_content(differences(result), exact != nullptr && !exact->unowned.empty());
}

}  // namespace lockstep::diagnosis
