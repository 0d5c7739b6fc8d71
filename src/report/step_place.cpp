// SPDX-License-Identifier: Apache-2.0
#include "src/report/step_place.h"

#include <algorithm>

#include "lockstep/scenario.h"
#include "src/base/utf8.h"

namespace lockstep::report {

namespace {

/// "backward[0]" and "backward.2" are "backward".
std::string_view written_name(std::string_view name) {
  name = name.substr(0, name.find('['));
  const std::size_t dot = name.rfind('.');
  const bool copy = dot != std::string_view::npos && dot + 1 < name.size() &&
                    name.find_first_not_of("0123456789", dot + 1) == std::string_view::npos;
  return copy ? name.substr(0, dot) : name;
}

/// The step of that name in a list of steps or in a list inside it; null where there is none.
const Json* find_step(const Json& steps, std::string_view wanted) {
  for (const Json& step : steps.items()) {
    const Json* name = step.find("name");
    const Json* op = step.find("op");
    const Json* called = name != nullptr ? name : op;
    if (called != nullptr && called->is_string() && called->text() == wanted) return &step;
    const Json* inside = step.find("steps");
    if (inside == nullptr) continue;
    if (const Json* found = find_step(*inside, wanted)) return found;
  }
  return nullptr;
}

/// The same among steps that were read.
const Step* find_step(const std::vector<Step>& steps, std::string_view wanted) {
  for (const Step& step : steps) {
    if (step.name == wanted) return &step;
    if (const Step* found = find_step(step.steps, wanted)) return found;
  }
  return nullptr;
}

/// What in the file speaks of the step; null where only a framework does.
const Json* find_in_file(const Json& schedule, std::string_view step) {
  if (const Json* edits = schedule.find("edits")) {
    const std::vector<Json>& items = edits->items();
    const auto last =
        std::find_if(items.rbegin(), items.rend(), [&](const Json& edit) { return is_about(edit, step); });
    if (last != items.rend()) return &*last;
  }
  const Json* steps = schedule.find("steps");
  return steps == nullptr ? nullptr : find_step(*steps, step);
}

int characters(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return !is_utf8_continuation(c); }));
}

FileStretch stretch_of(const Place& place, const std::string& file) {
  FileStretch stretch;
  stretch.file = file;
  if (place.source == nullptr) return stretch;
  const std::string_view text = place.source->text;
  const std::size_t line_end = std::min(text.find('\n', place.begin), text.size());
  const std::size_t end = std::clamp(place.end, place.begin, std::max(line_end, place.begin));
  stretch.file = place.source->name;
  stretch.line = line_column(place).line;
  const std::size_t line_begin = place.begin == 0 ? 0 : text.rfind('\n', place.begin - 1) + 1;
  stretch.column = 1 + characters(text.substr(line_begin, place.begin - line_begin));
  stretch.end_column = stretch.column + characters(text.substr(place.begin, end - place.begin));
  return stretch;
}

/// The scenario whose places are those of the file; null where it is not valid.
const Scenario* written(const CheckResult& result) {
  return result.written != nullptr ? result.written.get() : result.scenario.get();
}

}  // namespace

bool is_about(const Json& edit, std::string_view step) {
  for (const char* key : {"drop", "duplicate", "move", "set"}) {
    const Json* target = edit.find(key);
    if (target != nullptr && target->is_string() && (target->text() == step || written_name(target->text()) == step))
      return true;
  }
  const Json* inserted = edit.find("insert");
  const Json* name = inserted == nullptr ? nullptr : inserted->find("name");
  return name != nullptr && name->is_string() && name->text() == step;
}

FileStretch place_of_step(const CheckResult& result, const std::string& step) {
  const Scenario* scenario = written(result);
  const Json* schedule = scenario == nullptr ? nullptr : scenario->document.find("schedule");
  if (schedule == nullptr) return stretch_of({}, result.file);
  const std::string_view name = written_name(step);
  // A name of the user's own may look like that of a copy.
  for (const std::string_view each : {std::string_view(step), name}) {
    if (each.empty()) continue;
    if (const Json* found = find_in_file(*schedule, each)) return stretch_of(found->place(), result.file);
  }
  const Json* framework = schedule->find("framework");
  if (framework == nullptr) return stretch_of(schedule->place(), result.file);
  // The step of a built-in framework has a place as well, in a file that nobody can open.
  const Step* found = builtin_framework(framework->text()) != nullptr || result.scenario->schedule == nullptr
                          ? nullptr
                          : find_step(result.scenario->schedule->steps, name);
  const bool in_its_file =
      found != nullptr && found->place.source != nullptr && found->place.source != scenario->document.place().source;
  return stretch_of(in_its_file ? found->place : framework->place(), result.file);
}

FileStretch place_of_model(const CheckResult& result) {
  const Scenario* scenario = written(result);
  const Json* model = scenario == nullptr ? nullptr : scenario->document.find("model");
  if (model == nullptr) return stretch_of({}, result.file);
  const Json* edits = model->find("edits");
  const bool edited = edits != nullptr && !edits->items().empty();
  return stretch_of((edited ? edits->items().back() : *model).place(), result.file);
}

FileStretch place_of_error(const Diagnostic& error, const std::string& file) { return stretch_of(error.place, file); }

FileStretch place_of_expect(const CheckResult& result) {
  const Scenario* scenario = written(result);
  const Json* expect = scenario == nullptr ? nullptr : scenario->document.find("expect");
  return stretch_of(expect == nullptr ? Place{} : expect->place(), result.file);
}

}  // namespace lockstep::report
