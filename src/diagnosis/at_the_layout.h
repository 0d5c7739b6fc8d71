// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "lockstep/scenario.h"

namespace lockstep::diagnosis {

/// A mistake that no single part of the file is to blame for, shown at its layout.
inline Diagnostic at_the_layout(const Scenario& scenario, std::string message) {
  const Json* layout = scenario.document.find("layout");
  return {layout != nullptr ? layout->place() : scenario.document.place(), std::move(message)};
}

}  // namespace lockstep::diagnosis
