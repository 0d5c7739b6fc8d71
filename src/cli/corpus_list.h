// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/cli/output.h"
#include "src/cli/scenario_row.h"

namespace lockstep::cli {

/// The corpus as a table: a row for each file whose verdict is not `match`, and for each control: a file that matches,
/// has a `source`, and is no repair. Repairs are those of the project and number of a mistake, and those with "-fixed"
/// in their name. Files that are not valid have no row. Text and Markdown end with a summary.
void write_corpus(Output& output, const std::string& format, const std::vector<ScenarioRow>& rows);

}  // namespace lockstep::cli
