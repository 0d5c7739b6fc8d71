// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/edit.h"
#include "src/scenario/reading.h"

namespace lockstep {

/// The edits of a list that have no mistake; those of the others are added. Needs the batch.
std::vector<Edit> read_edits(const Json& list, Reading& reading);

/// Applies the edits of a schedule to plain steps, in order; those on parameters are left out.
/// `absent` names steps of the framework that are not in `steps`, with the reason.
Json apply_step_edits(const Json& steps, const std::vector<Edit>& edits,
                      const std::map<std::string, std::string>& absent, Diagnostics& diagnostics);

/// Applies the edits on parameters to plain parameters, in order.
Json apply_parameter_edits(const Json& parameters, const std::vector<Edit>& edits, Reading& reading);

/// The condition under which an iteration runs (`equal`) or all others do.
std::string iteration_condition(const EditTarget& target, bool equal);
/// `step` with `condition` joined to its own "when".
Json with_condition(const Json& step, const std::string& condition, const Place& place);

}  // namespace lockstep
