// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/report.h"
#include "src/diagnosis/mutation.h"

namespace lockstep::report {

/// What `lockstep mutate` says of each file; with `verbose` every mutant. Of several files a line each, unless that is
/// asked for, and one table.
void mutation_text(const std::vector<diagnosis::Mutation>& all, const ReportOptions& options, const Write& write);

/// All files with all mutants, as JSON.
void mutation_json(const std::vector<diagnosis::Mutation>& all, const Write& write);

}  // namespace lockstep::report
