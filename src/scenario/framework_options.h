// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/scenario.h"

namespace lockstep::scenario {

/// An option of a framework file, and what a scenario makes of it.
struct FrameworkOption {
  std::string name;
  std::string type;           ///< "boolean", "integer", "number" or "string"; "": any of these
  Json default_value, value;  ///< `value` is the default where the scenario does not give it
  std::vector<Json> allowed;  ///< empty: whatever has the type
  bool given = false;         ///< by the scenario
};

/// The options of the framework that a valid scenario names, in the order of the framework's file; none where its steps
/// come from elsewhere.
std::vector<FrameworkOption> framework_options(const Scenario& scenario);

}  // namespace lockstep::scenario
