// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/scenario/reading.h"
#include "src/scenario/selector_matches.h"

namespace lockstep::scenario {

/// Checks that step names are unique and that each `wait` names a step. Returns all names.
std::vector<std::string> check_step_names(const Json& steps, Reading& reading);
/// Checks that every selector of the steps chooses something on some rank.
void check_step_selectors(const Json& steps, SelectorMatches& matches, Reading& reading);
/// Checks that what "expect" names exists; a step that is blamed may also be one of `missing`, which the framework has
/// or which an edit dropped.
void check_expect(const Json& expect, const std::vector<std::string>& steps, const std::vector<std::string>& missing,
                  const Model* model, Reading& reading);

}  // namespace lockstep::scenario
