// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/report/finding_reporter.h"
#include "src/report/summary_counts.h"

namespace lockstep {

/// `--format github`: workflow commands that GitHub shows as annotations at the lines of a pull request. GitHub shows
/// ten errors of a step and drops the rest without a word; the rest is counted in a notice here.
/// Source: github/docs, content/actions/reference/workflows-and-actions/workflow-commands.md.
class GithubReporter : public FindingReporter {
 public:
  GithubReporter(const ReportOptions& options, Write write) : FindingReporter(options), write_(std::move(write)) {}
  void finish() override;

 private:
  void report(const FileFindings& file) override;

  Write write_;
  SummaryCounts counts_;
  std::size_t shown_ = 0;
};

}  // namespace lockstep
