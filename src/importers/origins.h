// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::importers {

/// The values of a scenario that the meaning of a key names, as JSON pointers: "layout.pp, option zero_stage" stands
/// for /layout/pp and /schedule/options/zero_stage, "model.vocab = 50257" for /model/vocab, "nothing: …" for none.
std::vector<std::string> scenario_pointers(std::string_view meaning);

}  // namespace lockstep::importers
