// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/check.h"
#include "lockstep/repair.h"

namespace lockstep::diagnosis {

struct OptionValue {
  std::string option;
  Json value;
};

struct OptionRepairs {
  /// Those given first, then those that are known to keep norms, then right for more sizes, then fewer steps that
  /// change.
  std::vector<OptionRepair> repairs;
  int options = 0;    ///< of the framework, of which another value was tried
  int values = 0;     ///< that were tried, not refused by the framework, and have a verdict
  int at_small = 0;   ///< of these, wrong at a smaller layout, and not looked at at the file's own sizes
  std::string small;  ///< which one: "dp 2"
  /// Of these, those that are right but for a norm or a clip that is not taken any more: none of them is a repair.
  std::vector<OptionValue> without_norm;
  int without_verdict = 0;  ///< besides these: they divide by zero, say, or no engine decides
  int options_left = 0;     ///< where it was cut off: options of which no value was tried, or not all
  std::string cut_off;      ///< why not all were tried: half a sentence; "" where they were
};

/// Which option of its framework makes a wrong file right: one at a time, the default, the other values that the
/// framework allows, and of a number 1, 2, 3 and sizes of the layout. Each is judged at the file's own sizes, unless
/// that takes much and the parametric engine does not decide. None for a file with edits of its own, which are what is
/// wrong there, and none that is known to drop a norm or a clip.
OptionRepairs option_repairs(const CheckResult& result);

}  // namespace lockstep::diagnosis
