// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/check.h"

namespace lockstep {

/// A stretch of a scenario file on one line: pull requests show no mark that leaves the lines of a change. Line and
/// columns from 1, columns in UTF-16 code units as SARIF and editors count, the end one past the last. Line 1, column 1 to 1 where there is nothing to point at.
struct FileStretch {
  std::string file;
  int line = 1, column = 1, end_column = 1;
};

/// Where the file speaks of a step: the last edit of it, the step itself, or else the framework that it comes from.
/// `step` may carry an iteration ("backward[0]"), and "" is the schedule as a whole.
FileStretch place_of_step(const CheckResult& result, const std::string& step);
FileStretch place_of_error(const Diagnostic& error, const std::string& file);
/// Of the file's `expect`.
FileStretch place_of_expect(const CheckResult& result);

}  // namespace lockstep
