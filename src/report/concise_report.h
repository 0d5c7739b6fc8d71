// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/report/finding_reporter.h"
#include "src/report/summary_counts.h"

namespace lockstep {

/// `--format concise`: "FILE:LINE:COLUMN: LS001 sentence", a line for each finding, for editors and problem matchers;
/// and a line that counts.
class ConciseReporter : public FindingReporter {
 public:
  ConciseReporter(const ReportOptions& options, Write write) : FindingReporter(options), write_(std::move(write)) {}
  void finish() override;

 private:
  void report(const FileFindings& file) override;

  Write write_;
  SummaryCounts counts_;
};

}  // namespace lockstep
