// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/report.h"
#include "src/report/summary_counts.h"

namespace lockstep {

/// `--format github`: workflow commands that GitHub shows as annotations at the lines of a pull request. GitHub shows
/// ten errors of a step and drops the rest without a word; the rest is counted in a notice here.
/// Source: github/docs, content/actions/reference/workflows-and-actions/workflow-commands.md.
class GithubReporter : public Reporter {
 public:
  GithubReporter(const ReportOptions& options, Write write)
      : options_(options), write_(std::move(write)), counts_(options.expectations) {}
  void add(const CheckResult& result) override;
  void finish() override;

 private:
  ReportOptions options_;
  Write write_;
  SummaryCounts counts_;
  std::size_t shown_ = 0;
};

}  // namespace lockstep
