// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/check.h"
#include "src/report/json_writer.h"
#include "src/report/style.h"

namespace lockstep::report {

/// The step at fault, its repair and who would not have noticed, behind a blank line; "" where nothing is blamed.
/// `verbose`: with whole formulas.
std::string blame_text(const CheckResult& result, bool verbose, const Style& style);

/// "  at fault: STEP", and on lines of their own "    it WHY", a clause each; unless `verbose`, of page_width with
/// short formulas.
std::string at_fault_text(const Blame& blame, bool verbose, const Style& style);

/// A value on one line, as an edit stands in a file.
std::string one_line(const Json& value);

/// "right with {…}", "together with {…}": an edit a line, all of which it takes. `where`: "at this layout ".
std::vector<std::string> right_with(const std::vector<Edit>& edits, const std::string& where = "");
/// The first repair that a check found, which is right at the layout that it shows.
std::vector<std::string> right_with(const CheckResult& result);

/// "at most 1.5 MB more per rank", "no additional communication", "1.5 MB less …".
std::string added_bytes_text(double bytes);

/// One repair: edits, verified, sizes, added_bytes_per_rank.
void write_json_repair(const Repair& repair, JsonWriter& json);

}  // namespace lockstep::report
