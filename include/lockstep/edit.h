// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/json.h"

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
  EditTarget step;                   ///< drop, duplicate, move, set
  EditTarget beside;                 ///< move, insert: the step next to which it goes
  bool after = false;                ///< move, insert: behind that, else in front of it
  Json inserted;                     ///< insert: the new step
  Json parameters;                   ///< parameter: selectors
  std::vector<Json::Member> values;  ///< set, parameter: keys with their new values, null for one that is removed
  Place place;

  static Edit drop(const std::string& step, const std::string& iteration = "");
  static Edit duplicate(const std::string& step);
  static Edit move(const std::string& step, const std::string& beside, bool after);
  static Edit insert(const Json& step, const std::string& beside, bool after);
  static Edit set(const std::string& step, std::vector<Json::Member> values);
  static Edit set_parameter(const std::string& parameter, std::vector<Json::Member> values);

  /// The new value of a key; null (the pointer) where the edit does not speak of it.
  const Json* value(std::string_view key) const;
};

/// As a scenario says it; reads back to the same edit.
Json to_json(const Edit& edit);
Json to_json(const std::vector<Edit>& edits);

}  // namespace lockstep
