// SPDX-License-Identifier: Apache-2.0
#include "src/report/step_place.h"

#include <algorithm>

#include "src/base/utf8.h"

namespace lockstep {

namespace {

/// "backward[0]" is "backward".
std::string_view without_iteration(std::string_view name) { return name.substr(0, name.find('[')); }

bool is_about(const Json& edit, std::string_view step) {
  for (const char* key : {"drop", "duplicate", "move", "set"}) {
    const Json* target = edit.find(key);
    if (target != nullptr && target->is_string() && without_iteration(target->text()) == step) return true;
  }
  const Json* inserted = edit.find("insert");
  const Json* name = inserted == nullptr ? nullptr : inserted->find("name");
  return name != nullptr && name->is_string() && name->text() == step;
}

/// The step of that name in a list of steps or in a list inside it; null where there is none.
const Json* find_step(const Json& steps, std::string_view wanted) {
  for (const Json& step : steps.items()) {
    const Json* name = step.find("name");
    const Json* op = step.find("op");
    const Json* called = name != nullptr ? name : op;
    if (called != nullptr && called->is_string() && called->text() == wanted) return &step;
    for (const char* key : {"steps", "each"}) {
      const Json* inside = step.find(key);
      if (inside == nullptr) continue;
      if (const Json* found = find_step(*inside, wanted)) return found;
    }
  }
  return nullptr;
}

/// What in the file speaks of the step; null where only a framework does.
const Json* find_in_file(const Json& schedule, std::string_view step) {
  if (const Json* edits = schedule.find("edits")) {
    const std::vector<Json>& items = edits->items();
    const auto last = std::find_if(items.rbegin(), items.rend(), [&](const Json& edit) { return is_about(edit, step); });
    if (last != items.rend()) return &*last;
  }
  const Json* steps = schedule.find("steps");
  return steps == nullptr ? nullptr : find_step(*steps, step);
}

/// UTF-16 code units: two for a character of four bytes.
int code_units(std::string_view text) {
  int count = 0;
  for (const char c : text) {
    if (is_utf8_continuation(c)) continue;
    count += static_cast<unsigned char>(c) >= 0xF0 ? 2 : 1;
  }
  return count;
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
  stretch.column = 1 + code_units(text.substr(line_begin, place.begin - line_begin));
  stretch.end_column = stretch.column + code_units(text.substr(place.begin, end - place.begin));
  return stretch;
}

}  // namespace

FileStretch place_of_step(const CheckResult& result, const std::string& step) {
  if (result.scenario == nullptr) return stretch_of({}, result.file);
  const Json* schedule = result.scenario->document.find("schedule");
  if (schedule == nullptr) return stretch_of({}, result.file);
  const Json* found = step.empty() ? nullptr : find_in_file(*schedule, without_iteration(step));
  if (found == nullptr) found = schedule->find("framework");
  return stretch_of((found == nullptr ? schedule : found)->place(), result.file);
}

FileStretch place_of_error(const Diagnostic& error, const std::string& file) { return stretch_of(error.place, file); }

FileStretch place_of_expect(const CheckResult& result) {
  const Json* expect = result.scenario == nullptr ? nullptr : result.scenario->document.find("expect");
  return stretch_of(expect == nullptr ? Place{} : expect->place(), result.file);
}

}  // namespace lockstep
