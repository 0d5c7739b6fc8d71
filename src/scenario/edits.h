// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/edit.h"
#include "src/scenario/reading.h"

namespace lockstep::scenario {

/// An edit as its file has it, which may say what no step can be read from.
struct WrittenEdit {
  Edit edit;                         ///< with what of its values can be read
  Json inserted;                     ///< insert: the new step
  std::vector<Json::Member> values;  ///< set: keys with their new values, null for one that is removed
};

/// The edits of a list that have no mistake; those of the others are added. Needs the batch.
std::vector<WrittenEdit> read_edits(const Json& list, Reading& reading);

/// Applies the edits of a schedule to plain steps, in order; those on parameters are left out.
/// `absent` names steps of the framework that are not in `steps`, with the reason.
Json apply_step_edits(const Json& steps, const std::vector<WrittenEdit>& edits,
                      const std::map<std::string, std::string>& absent, Diagnostics& diagnostics);

/// Applies the edits on parameters to plain parameters, in order.
Json apply_parameter_edits(const Json& parameters, const std::vector<WrittenEdit>& edits, Reading& reading);

/// The condition under which an iteration runs (`equal`) or all others do.
std::string iteration_condition(const EditTarget& target, bool equal);

}  // namespace lockstep::scenario
