// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/report/finding_reporter.h"
#include "src/report/json_writer.h"
#include "src/report/summary_counts.h"

namespace lockstep {

/// `--format sarif`: SARIF 2.1.0, one run, as GitHub code scanning takes it. At most 25,000 results, which is the most
/// that GitHub accepts of a run; a notification counts the rest. A mistake that a file's `expect` describes is no
/// result, for GitHub shows those with a suppression like all others; another notification counts such files. Sources:
/// OASIS sarif-v2.1.0; github/docs, sarif-support-for-code-scanning.md.
class SarifReporter : public FindingReporter {
 public:
  SarifReporter(const ReportOptions& options, Write write);
  void finish() override;

 private:
  void report(const FileFindings& file) override;
  void write_rules();

  JsonWriter json_;
  SummaryCounts counts_;
  std::size_t written_ = 0, left_out_ = 0;
  bool successful_ = true;
};

}  // namespace lockstep
