// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "src/scenario/edits.h"
#include "src/scenario/other_words.h"

namespace lockstep {

namespace {

/// Whether an optimizer step has an iteration of this index.
bool check_iteration(const EditTarget& target, Reading& reading) {
  if (target.iteration == "first" || target.iteration == "last") return true;
  const std::optional<std::int64_t> index = whole_number(Json::number(target.iteration));
  if (!index) {
    reading.diagnostics.add(
        target.place,
        fmt::format("expected an index, \"first\" or \"last\" in the brackets, found \"{}\"", target.iteration));
    return false;
  }
  const std::vector<int>& counts = reading.batch.micro_batch_counts;
  const int most = *std::max_element(counts.begin(), counts.end());
  if (*index < most && *index >= -most) return true;
  reading.diagnostics.add(
      target.place,
      fmt::format("iteration {} does not exist: an optimizer step has {} micro-batches, counted from 0", *index, most));
  return false;
}

}  // namespace

std::string action_of(const Json& edit, Reading& reading) {
  if (!edit.is_object()) {
    reading.diagnostics.add(edit.place(),
                            fmt::format("expected an edit such as {{ \"drop\": STEP }}, found {}", edit.describe()));
    return "";
  }
  const std::vector<std::string> actions = variants_of(object_row(Object::edit));
  std::string found;
  for (const Json::Member& member : edit.members()) {
    if (std::find(actions.begin(), actions.end(), member.key) == actions.end()) continue;
    if (!found.empty()) {
      reading.diagnostics.add(
          key_place(member),
          fmt::format("an edit does one thing: \"{}\" cannot stand beside \"{}\"", member.key, found));
      return "";
    }
    found = member.key;
  }
  if (!found.empty()) return found;
  std::string near;
  for (const Json::Member& member : edit.members()) {
    if (near.empty()) near = did_you_mean_here(member.key, actions);
  }
  reading.diagnostics.add(edit.place(),
                          fmt::format("expected an edit with one of {}{}", quoted_alternatives(actions), near));
  return "";
}

std::optional<EditTarget> read_target(const Json& value, Reading& reading) {
  EditTarget target{value.text(), "", value.place()};
  const std::size_t open = target.name.find('[');
  if (open == std::string::npos) return target;
  if (target.name.back() != ']') {
    reading.diagnostics.add(value.place(), fmt::format("expected STEP or STEP[INDEX], found \"{}\"", target.name));
    return std::nullopt;
  }
  target.iteration = target.name.substr(open + 1, target.name.size() - open - 2);
  target.name.resize(open);
  if (!check_iteration(target, reading)) return std::nullopt;
  return target;
}

std::string iteration_condition(const EditTarget& target, bool equal) {
  std::string iteration = target.iteration;
  if (iteration == "first") iteration = "0";
  if (iteration == "-1") iteration = "last";
  if (iteration[0] == '-') iteration = "micro_batches - " + iteration.substr(1);
  return fmt::format("micro_batch {} {}", equal ? "==" : "!=", iteration);
}

Json with_condition(const Json& step, const std::string& condition, const Place& place) {
  const Json* own = step.find("when");
  std::string joined = condition;
  if (own != nullptr && own->is_string()) joined = fmt::format("{} and ({})", condition, own->text());
  if (own != nullptr && own->is_boolean() && !own->as_boolean()) return step;
  Json changed = step;
  changed.set("when", Json::string(joined, place));
  return changed;
}

}  // namespace lockstep
