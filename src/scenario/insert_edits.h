// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/scenario.h"

namespace lockstep::scenario {

/// The text of a scenario's file with edits (each as JSON on one line) behind those that it has, and with the verdict
/// `match` expected where it expects anything. Everything else, comments too, stays as it was written, but for paths
/// that are others in `folder`, where the text is to stand. Throws InputError as moved_references().
std::string text_with_edits(const Scenario& scenario, const std::vector<std::string>& edits,
                            const std::filesystem::path& folder);

}  // namespace lockstep::scenario
