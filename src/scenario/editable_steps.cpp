// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/editable_steps.h"

#include "src/base/budget.h"
#include "src/scenario/checks.h"
#include "src/scenario/edits.h"

namespace lockstep {

EditableSteps::EditableSteps(const Json& resolved)
    : steps_(*resolved.find("schedule")->find("steps")), schedule_(read_schedule(resolved, reading_)) {}

Schedule EditableSteps::read_schedule(const Json& resolved, Reading& reading) {
  const auto fail_if_wrong = [&reading] {
    if (!reading.diagnostics.empty()) throw InputError(reading.diagnostics.sorted());
  };
  const Json* batch = resolved.find("batch");
  read_layout(*resolved.find("layout"), reading);
  read_batch(batch != nullptr ? *batch : Json::object(), reading);
  std::vector<Parameter> parameters = read_parameters(*resolved.find("model")->find("parameters"), reading);
  fail_if_wrong();
  Model model(*reading.mesh, std::move(parameters), reading.diagnostics);
  std::vector<Step> steps = read_steps(*resolved.find("schedule")->find("steps"), reading);
  fail_if_wrong();
  const Json* result = resolved.find("schedule")->find("result");
  return Schedule{*reading.mesh, std::move(model), reading.batch, std::move(steps),
                  result != nullptr ? result->text() : "grad"};
}

Json EditableSteps::edited(const std::vector<Edit>& edits) const {
  static const std::map<std::string, std::string> none;
  constexpr std::int64_t units_of_a_step = 30;
  Budget::spend(units_of_a_step * static_cast<std::int64_t>(steps_.items().size()));
  reading_.diagnostics = {};
  Json steps = apply_step_edits(steps_, edits, none, reading_.diagnostics);
  return reading_.diagnostics.empty() ? steps : Json();
}

std::optional<std::vector<Step>> EditableSteps::read(const Json& steps) const {
  reading_.diagnostics = {};
  check_step_names(steps, reading_);
  if (!reading_.diagnostics.empty()) return std::nullopt;
  std::vector<Step> list;
  for (const Json& step : steps.items()) {
    const auto [entry, is_new] = read_.try_emplace(content_hash(step));
    if (is_new) {
      std::vector<Step> one = read_steps(Json::array({step}), reading_);
      if (reading_.diagnostics.empty()) entry->second = std::move(one.front());
      reading_.diagnostics = {};
    }
    if (!entry->second) return std::nullopt;
    list.push_back(*entry->second);
  }
  return list;
}

std::uint64_t content_hash(const Json& value) {
  std::uint64_t hash = static_cast<std::uint64_t>(value.kind()) + 1;
  const auto mix = [&hash](std::uint64_t part) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 29U;
  };
  if (value.is_boolean()) mix(value.as_boolean() ? 2 : 3);
  if (value.is_string() || value.is_number()) mix(std::hash<std::string>()(value.text()));
  for (const Json& item : value.items()) mix(content_hash(item));
  for (const Json::Member& member : value.members()) {
    mix(std::hash<std::string>()(member.key));
    mix(content_hash(member.value));
  }
  return hash;
}

Json with_edits(const Json& document, const std::vector<Edit>& edits) {
  return with_edits(document, to_json(edits).items());
}

Json with_edits(const Json& document, const std::vector<Json>& edits) {
  Json schedule = *document.find("schedule");
  const Json* written = schedule.find("edits");
  std::vector<Json> list = written != nullptr ? written->items() : std::vector<Json>();
  list.insert(list.end(), edits.begin(), edits.end());
  schedule.set("edits", Json::array(std::move(list), written != nullptr ? written->place() : schedule.place()));
  Json changed = document;
  changed.set("schedule", schedule);
  return changed;
}

}  // namespace lockstep
