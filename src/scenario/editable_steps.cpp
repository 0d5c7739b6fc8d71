// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/editable_steps.h"

#include <algorithm>
#include <set>

#include "lockstep/operation.h"
#include "src/base/budget.h"
#include "src/scenario/parts_hash.h"
#include "src/scenario/step_edits.h"
#include "src/scenario/step_keys.h"

namespace lockstep::scenario {

namespace {

std::vector<int> numbers_on(const std::vector<Coordinate>& written, int size) {
  std::set<int> numbers;
  for (const Coordinate& coordinate : written) numbers.insert(static_cast<int>(coordinate.on(size)));
  return {numbers.begin(), numbers.end()};
}

/// Coordinates that a file has mean other ranks at other sizes.
void put_on(const Mesh& mesh, Step& step) {
  if (step.over) {
    for (Over::Pick& pick : step.over->picks) {
      if (!pick.written.empty()) pick.coordinates = numbers_on(pick.written, mesh.size(pick.axis));
    }
  }
  for (Only& only : step.only) {
    if (!only.written.empty()) only.coordinates = numbers_on(only.written, mesh.size(only.axis));
  }
  if (!step.root || step.root->written.empty()) return;
  step.root->coordinates.clear();
  for (const auto& [axis, written] : step.root->written)
    step.root->coordinates.emplace_back(axis, static_cast<int>(written.on(mesh.size(axis))));
}

bool are_on(const Mesh& mesh, const Step& step) {
  const auto all_on = [&](Axis axis, const std::vector<int>& numbers) {
    return std::all_of(numbers.begin(), numbers.end(),
                       [&](int number) { return 0 <= number && number < mesh.size(axis); });
  };
  bool all = true;
  if (step.over) {
    for (const Over::Pick& pick : step.over->picks) all &= !pick.coordinates || all_on(pick.axis, *pick.coordinates);
  }
  for (const Only& only : step.only) all &= all_on(only.axis, only.coordinates);
  if (step.root) {
    for (const auto& [axis, number] : step.root->coordinates) all &= all_on(axis, {number});
  }
  return all;
}

void set_values(Step& step, const Edit& edit) {
  // Keys of another kind would have no meaning in the new one.
  if (says(edit.values, "geometry.kind") && step.geometry->kind != edit.values.geometry->kind) step.geometry = {};
  for (const std::string_view key : edit.values.keys) set_key(step, key, edit.values);
  for (const std::string_view key : edit.removed) remove_key(step, key);
}

void collect_names(const std::vector<Step>& steps, std::vector<std::string_view>& names) {
  for (const Step& step : steps) {
    if (!step.name.empty()) names.push_back(step.name);
    collect_names(step.steps, names);
  }
}

/// What the key table says of a step of one op.
struct KeysOfOp {
  std::vector<std::string_view> needed, own;
};

KeysOfOp keys_of(Op op) {
  const ObjectRow& row = object_row(Object::step);
  const std::string_view name = operation(op).name;
  KeysOfOp keys;
  for (const ObjectKey& key : row.keys) {
    if (!has_key(row, key, name)) continue;
    keys.own.push_back(key.name);
    if (needs_key(key, name)) keys.needed.push_back(key.name);
  }
  return keys;
}

/// Both are names of the key table, most often the very same text.
bool holds(const std::vector<std::string_view>& keys, std::string_view key) {
  for (const std::string_view one : keys) {
    if (one.data() == key.data() && one.size() == key.size()) return true;
  }
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

/// Which keys an op has and needs.
bool has_its_keys(const Step& step) {
  static const std::vector<KeysOfOp> by_op = made_once([] {
    std::vector<KeysOfOp> rows;
    rows.reserve(op_count);
    for (int op = 0; op < op_count; ++op) rows.push_back(keys_of(static_cast<Op>(op)));
    return rows;
  });
  const KeysOfOp& keys = by_op[static_cast<std::size_t>(step.op)];
  const auto is_said = [&](std::string_view key) { return holds(step.keys, key); };
  const auto is_own = [&](std::string_view key) { return holds(keys.own, key); };
  return std::all_of(keys.needed.begin(), keys.needed.end(), is_said) &&
         std::all_of(step.keys.begin(), step.keys.end(), is_own);
}

/// They are copied for each trial, and nobody is told where a step of a trial was written.
std::vector<Step> without_places(std::vector<Step> steps) {
  for (Step& step : steps) {
    step.place = {};
    step.places = {};
    if (*step.geometry == Geometry()) {
      step.geometry = {};
    } else {
      step.geometry.own().place = {};
    }
    step.steps = without_places(std::move(step.steps));
  }
  return steps;
}

/// All that steps say, their names included.
class StepHash {
 public:
  std::uint64_t of(const std::vector<Step>& steps) {
    for (const Step& step : steps) add(step);
    return hash_.value();
  }

 private:
  void add(const Step& step) {
    std::size_t keys = 0;  // in any order
    for (const std::string_view key : step.keys) keys += std::hash<std::string_view>()(key);
    hash_.add(keys);
    for (const std::string* text : {&step.name, &step.buffer, &step.from, &step.what, &step.wait_for}) hash_.add(*text);
    for (const auto* list : {&step.params.items(), &step.uses}) hash_.add(*list);
    for (const auto* one : {&step.by, &step.when, &step.count}) hash_.add(*one);
    for (const Only& only : step.only) add(only.axis, only.coordinates);
    for (const Over::Pick& pick : step.over ? step.over->picks : std::vector<Over::Pick>())
      add(pick.axis, pick.coordinates.value_or(std::vector<int>()));
    if (step.root) {
      hash_.add(step.root->position.value_or(-1));
      for (const auto& [axis, number] : step.root->coordinates) add(axis, {number});
    }
    add(*step.geometry);
    for (const bool flag :
         {step.reduction == Reduction::average, step.on_owned, step.async, step.per_rank, step.mean_of_norms})
      hash_.add(flag);
    hash_.add(static_cast<int>(step.op));
    of(step.steps);
    hash_.add(step.steps.size());
  }
  void add(const Geometry& geometry) {
    hash_.add(static_cast<int>(geometry.kind));
    for (const auto* one : {&geometry.align, &geometry.size, &geometry.align_bucket}) hash_.add(*one);
    hash_.add(std::optional(geometry.align_parameter));
    if (geometry.separate) hash_.add(geometry.separate->items());
    hash_.add(geometry.counts);
  }
  void add(Axis axis, const std::vector<int>& coordinates) {
    hash_.add(static_cast<int>(axis));
    hash_.add(coordinates);
  }

  PartsHash hash_;
};

}  // namespace

Schedule with_parameters(const Schedule& schedule, std::vector<Parameter> parameters) {
  Diagnostics diagnostics;
  Model model(schedule.mesh, std::move(parameters), diagnostics);
  if (!diagnostics.empty()) throw InputError(diagnostics.sorted());
  return {schedule.mesh, std::move(model), schedule.batch, schedule.steps, schedule.result};
}

EditableSteps::EditableSteps(const Schedule& schedule, std::vector<Parameter> parameters)
    : schedule_(with_parameters(schedule, std::move(parameters))),
      steps_(without_places(schedule.steps)),
      nodes_(nodes_of(steps_)) {
  reading_.layout = schedule.mesh.layout();
  reading_.layout_known = true;
  reading_.mesh = std::make_shared<const Mesh>(schedule.mesh);
  reading_.batch = schedule.batch;
  for (const Parameter& parameter : schedule_.model.parameters())
    reading_.uses.insert(parameter.uses.begin(), parameter.uses.end());
}

std::optional<std::vector<Step>> EditableSteps::edited(const std::vector<Edit>& edits) const {
  std::vector<const Edit*> list;
  list.reserve(edits.size());
  for (const Edit& edit : edits) list.push_back(&edit);
  return edited(list);
}

std::optional<std::vector<Step>> EditableSteps::edited(const std::vector<const Edit*>& edits) const {
  constexpr std::int64_t units_of_a_step = 30;
  Budget::spend(units_of_a_step * static_cast<std::int64_t>(steps_.size()));
  reading_.diagnostics = {};
  StepEdits<Step> steps(nodes_, {}, reading_.diagnostics);
  for (const Edit* edit : edits) {
    Step inserted;
    if (edit->action == Edit::Action::insert) {
      inserted = edit->values;
      put_on(schedule_.mesh, inserted);
    }
    steps.apply(*edit, inserted, [&](Step& step) {
      set_values(step, *edit);
      put_on(schedule_.mesh, step);
    });
  }
  return reading_.diagnostics.empty() ? std::optional(steps.take_steps()) : std::nullopt;
}

bool EditableSteps::are_valid(const std::vector<Step>& steps) const {
  std::vector<std::string_view> names;
  collect_names(steps, names);
  std::sort(names.begin(), names.end());
  const auto waits_for_one = [&](const Step& step) {
    return step.wait_for.empty() || std::binary_search(names.begin(), names.end(), step.wait_for);
  };
  return std::adjacent_find(names.begin(), names.end()) == names.end() &&
         std::all_of(steps.begin(), steps.end(), [&](const Step& step) {
           return waits_for_one(step) && is_valid(step, false) &&
                  std::all_of(step.steps.begin(), step.steps.end(),
                              [&](const Step& inner) { return waits_for_one(inner) && is_valid(inner, true); });
         });
}

bool EditableSteps::is_valid(const Step& step, bool in_each) const {
  const auto has_meaning = [&](const std::optional<Expression>& one) {
    return in_each || !one || !one->uses_micro_batch();
  };
  const auto is_use = [&](const std::string& use) { return reading_.uses.contains(use); };
  if (!has_its_keys(step) || !are_on(schedule_.mesh, step) || !has_meaning(step.by) || !has_meaning(step.when) ||
      !has_meaning(step.count) || !std::all_of(step.uses.begin(), step.uses.end(), is_use))
    return false;
  reading_.diagnostics = {};
  check_step(step, in_each, reading_, [&](const char*) { return step.place; });
  return reading_.diagnostics.empty();
}

std::uint64_t content_hash(const std::vector<Step>& steps) { return StepHash().of(steps); }

}  // namespace lockstep::scenario
