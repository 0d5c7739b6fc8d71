// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "src/scenario/reading.h"

namespace lockstep {

/// Applies the edits of a schedule to plain steps, in order; those on parameters are left out.
/// `absent` names steps of the framework that are not in `steps`, with the reason.
Json apply_step_edits(const Json& steps, const Json& edits, const std::map<std::string, std::string>& absent,
                      Reading& reading);

/// Applies the edits on parameters to plain parameters, in order.
Json apply_parameter_edits(const Json& parameters, const Json& edits, Reading& reading);

/// The action of an edit ("drop", "set", …), or "" where a mistake was added.
std::string action_of(const Json& edit, Reading& reading);

/// The name of a step in an edit, perhaps with an iteration: "backward", "backward[0]".
struct EditTarget {
  std::string name;
  std::string iteration;  ///< "0", "-1", "first", "last"; "" for the step as a whole
  Place place;
};
/// Nothing where a mistake was added.
std::optional<EditTarget> read_target(const Json& value, Reading& reading);
/// The condition under which an iteration runs (`equal`) or all others do.
std::string iteration_condition(const EditTarget& target, bool equal);
/// `step` with `condition` joined to its own "when".
Json with_condition(const Json& step, const std::string& condition, const Place& place);

}  // namespace lockstep
