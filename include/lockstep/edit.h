// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/json.h"
#include "lockstep/schedule.h"

namespace lockstep {

/// A step as an edit names it, perhaps in one of its iterations: "backward", "backward[0]".
struct EditTarget {
  std::string name;
  std::string iteration;  ///< "0", "-1", "first", "last"; "" for the step as a whole
  Place place;

  std::string to_string() const { return iteration.empty() ? name : name + "[" + iteration + "]"; }
};

/// One change of a schedule or of its parameters, as a scenario's "edits" list them. Members that an action does not
/// have stay empty.
struct Edit {
  enum class Action { drop, duplicate, move, set, insert, parameter };
  Action action = Action::drop;
  EditTarget step;     ///< drop, duplicate, move, set
  EditTarget beside;   ///< move, insert: the step next to which it goes
  bool after = false;  ///< move, insert: behind that, else in front of it
  /// insert: the new step; set: the new values of the keys that it says ("geometry.align" for one of a geometry).
  Step values;
  std::vector<std::string_view> removed;       ///< set: keys that the step has no more
  Json parameters;                             ///< parameter: selectors
  std::vector<Json::Member> parameter_values;  ///< parameter: keys with their new values, null for one that is removed
  Place place;

  static Edit drop(const std::string& step, const std::string& iteration = "");
  static Edit duplicate(const std::string& step);
  static Edit move(const std::string& step, const std::string& beside, bool after);
  static Edit insert(Step step, const std::string& beside, bool after);
  /// Gives a step the values of the keys that `values` says.
  static Edit set(const std::string& step, Step values, std::vector<std::string_view> removed = {});
  static Edit set_parameter(const std::string& parameter, std::vector<Json::Member> values);

  /// Whether a "set" gives the step another value of a key, or takes it away; of "geometry" also by one of its keys.
  bool changes(std::string_view key) const;
};

/// As a scenario says it; reads back to the same edit.
Json to_json(const Edit& edit);
Json to_json(const std::vector<Edit>& edits);

}  // namespace lockstep
