// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/check.h"

namespace lockstep::report {

/// Lines of the scenario file that a reader should look at first.
struct FaultMark {
  int line = 0, last_line = 0;  ///< from 1
  std::string what;             ///< "step at fault", "edit", "mistake"
};

/// The steps at fault where the file has them; else the edits that name them; else all edits, and the framework that
/// the step stems from. In a file that is not valid: its mistakes. Ascending; empty for `match`.
std::vector<FaultMark> fault_marks(const CheckResult& result);
/// The text of the scenario file; null where it could not be read.
const std::string* scenario_text(const CheckResult& result);

}  // namespace lockstep::report
