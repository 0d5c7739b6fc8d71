// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "src/report/clean_text.h"
#include "src/report/finding_reporters.h"
#include "src/report/rule_findings.h"

namespace lockstep::report {

void ConciseReporter::report(const FileFindings& file) {
  counts_.add(file);
  for (const RuleFinding& finding : file.findings) {
    write_(fmt::format("{}:{}:{}: {} {}\n", file_text(finding.place.file), finding.place.line, finding.place.column,
                       finding.rule().id, one_line_text(finding.message)));
  }
}

void ConciseReporter::finish() {
  if (!options().quiet) write_(counts_.sentence() + "\n");
}

}  // namespace lockstep::report
