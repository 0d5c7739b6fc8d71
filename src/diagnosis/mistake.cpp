// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mistake.h"

#include <algorithm>

#include "lockstep/operation.h"
#include "src/diagnosis/difference.h"
#include "src/diagnosis/other_tests.h"

namespace lockstep {

namespace {

/// The edits of the file, or nothing.
std::vector<Json> edits_of(const Scenario& scenario) {
  const Json* schedule = scenario.document.find("schedule");
  const Json* edits = schedule == nullptr ? nullptr : schedule->find("edits");
  return edits == nullptr ? std::vector<Json>() : edits->items();
}

/// The scenario without one of its edits; null where the others need it, or where it is what makes the file valid.
std::shared_ptr<const Scenario> without_edit(const Scenario& scenario, std::vector<Json> edits, std::size_t index) {
  edits.erase(edits.begin() + static_cast<std::ptrdiff_t>(index));
  Json list = Json::array();
  list.set_items(std::move(edits));
  Json document = scenario.document;
  Json schedule = *document.find("schedule");
  schedule.set("edits", list);
  document.set("schedule", schedule);
  document.remove("expect");
  try {
    return std::make_shared<const Scenario>(read_scenario(document, scenario.file));
  } catch (const InputError&) {
    return nullptr;
  }
}

/// The name without an iteration: "backward[0]" is "backward".
std::string step_name(const Json& target) { return target.text().substr(0, target.text().find('[')); }

const Step* find_step(const std::vector<Step>& steps, const std::string& name) {
  for (const Step& step : steps) {
    if (step.name == name) return &step;
    if (const Step* inside = find_step(step.steps, name)) return inside;
  }
  return nullptr;
}

bool is_reduction(Op op) { return operation(op).value == Operation::Value::reduction; }

/// What an edit says of the mistake by itself. `right` is the scenario without it.
std::optional<Mistake> kind_of_edit(const Json& edit, const Schedule& right) {
  if (const Json* target = edit.find("drop")) {
    const Step* step = find_step(right.steps, step_name(*target));
    if (step != nullptr && is_reduction(step->op)) return Mistake::missing_reduction;
  } else if (const Json* again = edit.find("duplicate")) {
    const Step* step = find_step(right.steps, step_name(*again));
    if (step != nullptr && is_reduction(step->op)) return Mistake::extra_reduction;
  } else if (const Json* inserted = edit.find("insert")) {
    const Json* op = inserted->find("op");
    const std::optional<Op> known = op == nullptr ? std::nullopt : op_named(op->text());
    if (known && is_reduction(*known)) return Mistake::extra_reduction;
  } else if (edit.find("move") != nullptr) {
    return Mistake::wrong_place;
  } else if (edit.find("set") != nullptr) {
    if (edit.find("over") != nullptr || edit.find("root") != nullptr) return Mistake::wrong_group;
    if (edit.find("geometry") != nullptr) return Mistake::wrong_cut;
  } else if (edit.find("parameter") != nullptr) {
    for (const char* key : {"partial", "shard", "dispatch", "tied", "stage"}) {
      if (edit.find(key) != nullptr) return Mistake::wrong_placement;
    }
  }
  return std::nullopt;
}

std::optional<Mistake> kind_by_edits(const CheckResult& result) {
  const std::vector<Json> edits = edits_of(*result.scenario);
  // One of so many would say little, and each means another check.
  constexpr std::size_t most_edits = 32;
  if (edits.size() > most_edits) return std::nullopt;
  CheckOptions options;
  options.host = false;
  options.blame = options.turns = false;
  for (std::size_t index = 0; index < edits.size(); ++index) {
    const std::shared_ptr<const Scenario> right = without_edit(*result.scenario, edits, index);
    if (right == nullptr || check_scenario(right, options).verdict != Verdict::match) continue;
    return kind_of_edit(edits[index], *right->schedule);
  }
  return std::nullopt;
}

Mistake kind_by_content(const CheckResult& result) {
  const std::vector<Difference> list = differences(result);
  const auto any = [&](auto condition) { return std::any_of(list.begin(), list.end(), condition); };
  if (any([](const Difference& one) { return one.leftover; })) return Mistake::leftover;
  if (any([](const Difference& one) { return one.foreign; })) return Mistake::wrong_cut;
  const SymbolicResult* exact = exact_of(result);
  if (exact != nullptr && !exact->unowned.empty()) return Mistake::no_owner;
  if (any([](const Difference& one) { return one.missing; })) return Mistake::missing_reduction;
  if (any([](const Difference& one) { return one.left_out || *one.least != *one.most; })) return Mistake::wrong_weights;
  return Mistake::wrong_factor;
}

}  // namespace

std::string_view name_of(Mistake mistake) {
  switch (mistake) {
    case Mistake::missing_reduction:
      return "missing reduction";
    case Mistake::extra_reduction:
      return "extra reduction";
    case Mistake::wrong_place:
      return "wrong place";
    case Mistake::wrong_group:
      return "wrong group";
    case Mistake::wrong_cut:
      return "wrong cut";
    case Mistake::wrong_placement:
      return "wrong placement";
    case Mistake::wrong_factor:
      return "wrong factor";
    case Mistake::wrong_weights:
      return "wrong weights";
    case Mistake::leftover:
      return "leftover";
    case Mistake::no_owner:
      return "no owner";
    case Mistake::norm_count:
      return "norm count";
    case Mistake::deadlock:
      return "deadlock";
    case Mistake::invalid_collective:
      return "invalid collective";
    case Mistake::race:
      return "race";
    case Mistake::in_the_model:
      return "in the model";
  }
  return "";
}

Mistake kind_of_mistake(const CheckResult& result) {
  if (wrong_in_model_alone(result)) return Mistake::in_the_model;
  if (result.verdict == Verdict::deadlock) return Mistake::deadlock;
  if (result.verdict == Verdict::invalid_collective) return Mistake::invalid_collective;
  if (result.verdict == Verdict::race) return Mistake::race;
  if (wrong_in_norm_alone(result)) return Mistake::norm_count;
  const std::optional<Mistake> edited = kind_by_edits(result);
  return edited ? *edited : kind_by_content(result);
}

}  // namespace lockstep
