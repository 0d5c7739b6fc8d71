// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "src/report/finding_reporter.h"
#include "src/report/summary_counts.h"

namespace lockstep {

/// `--format markdown`: a table of the files, and below it what was found in each, for a pull request's comment or a
/// job's summary. At most 900 kB: GitHub refuses a summary of more than 1 MiB; what is left out is counted.
class MarkdownReporter : public FindingReporter {
 public:
  MarkdownReporter(const ReportOptions& options, Write write) : FindingReporter(options), write_(std::move(write)) {}
  void finish() override;

 private:
  void report(const FileFindings& file) override;

  Write write_;
  SummaryCounts counts_;
  std::string rows_, details_;
  int rows_left_out_ = 0, details_left_out_ = 0;
};

}  // namespace lockstep
