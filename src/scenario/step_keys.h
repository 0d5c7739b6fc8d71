// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/json.h"
#include "lockstep/schedule.h"

namespace lockstep::scenario {

/// What a key of the key table is of a typed step. Keys of a geometry stand there too, as "geometry.kind", for edits
/// change a geometry key by key.
struct StepKey {
  std::string_view name;
  void (*copy)(const Step& from, Step& to);
  bool (*same)(const Step& a, const Step& b);  ///< places aside
  /// As a file says it: expressions as they were parsed, selectors as a list; null for what a step does not have.
  Json (*write)(const Step& step);
};

/// In the order in which steps are written; "buffer" and "to" are one member of the step.
const std::vector<StepKey>& step_keys();
/// Throws InternalError for a name that is none.
const StepKey& step_key(std::string_view name);

/// Whether the step's file says something of it, be it the default.
bool says(const Step& step, std::string_view key);
/// Gives the step the value that another one has, as if its file said so.
void set_key(Step& step, std::string_view key, const Step& from);
/// The step with this value of a key, which it says.
template <typename Value>
Step with(Step step, std::string_view key, Value Step::*member, Value value) {
  step.*member = std::move(value);
  step.keys.push_back(key);
  return step;
}
/// Gives it the default, as if its file said nothing.
void remove_key(Step& step, std::string_view key);

/// A step with what its `keys` name, in their order.
Json as_written(const Step& step);

}  // namespace lockstep::scenario
