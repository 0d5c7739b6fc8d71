// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/scenario.h"

namespace lockstep::scenario {

/// `document`, the scenario in `file` as written, with some of its keys changed: each change is KEY=VALUE. KEY names
/// members from the top of the file, with dots between them ("layout.dp"), and elements of lists by their numbers
/// ("schedule.steps.1.by"); one without dots that the top of a file cannot have is an option of the framework, but for
/// "framework", "micro_batches" and the names of axes, whose places are known. VALUE is JSON; what is none is a string,
/// and so is a number, true or false where the key holds a text ("core=0.16"). Its own expectations are those of
/// the file as it is, so they go. Throws InputError for a change that cannot be made; the values have places
/// of their own, in a source that is called `option` and the change.
Json with_changes(const Json& document, const std::string& file, const std::vector<std::string>& changes,
                  const std::string& option = "");

/// A scenario file read with such changes. Throws InputError, with the mistake's place in the file or in a change.
Scenario read_changed_scenario(const std::string& file, const std::vector<std::string>& changes);

/// Every scenario file that this process reads from here on has these changes too: what --set asks for.
void set_in_every_scenario(std::vector<std::string> changes);
const std::vector<std::string>& changes_of_every_scenario();

}  // namespace lockstep::scenario
