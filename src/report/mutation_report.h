// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/report.h"
#include "src/diagnosis/mutation.h"

namespace lockstep::report {

/// What `lockstep mutate` says of one file; with `verbose` every mutant.
void mutation_text(const diagnosis::Mutation& mutation, const ReportOptions& options, const Write& write);

/// The sums of several files: a table by kind of edit, and a sentence.
void mutation_summary_text(const std::vector<diagnosis::Mutation>& all, const Write& write);

/// A table with a line for each file, one with a line for each kind of edit, and the mutants that survive, as Markdown.
void mutation_markdown(const std::vector<diagnosis::Mutation>& all, const Write& write);

/// All files with all mutants, as JSON.
void mutation_json(const std::vector<diagnosis::Mutation>& all, const Write& write);

}  // namespace lockstep::report
