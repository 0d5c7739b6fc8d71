// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "lockstep/check.h"

namespace lockstep::report {

/// A stretch of a file on one line: pull requests show no mark that leaves the lines of a change. Line and columns from
/// 1, columns in code points of UTF-8 as messages count, the end one past the last. Line 1, column 1 to 1 where
/// there is nothing to point at.
struct FileStretch {
  std::string file;
  int line = 1, column = 1, end_column = 1;
};

/// Whether an edit drops, doubles, moves, changes or inserts the step, which may carry an iteration or the number of a
/// copy in the edit's words.
bool is_about(const Json& edit, std::string_view step);

/// Where a step is written: the last edit of it in the scenario, the step itself, or its line in the framework file
/// that the scenario names; for a built-in framework the name of that. `step` may carry an iteration ("backward[0]") or
/// the number of a copy ("dp_all_reduce.2"), and "" is the schedule as a whole.
FileStretch place_of_step(const CheckResult& result, const std::string& step);
/// Where the file changes what the model communicates: the last edit of the model, else the model.
FileStretch place_of_model(const CheckResult& result);
FileStretch place_of_error(const Diagnostic& error, const std::string& file);
/// Of the file's `expect`.
FileStretch place_of_expect(const CheckResult& result);

}  // namespace lockstep::report
