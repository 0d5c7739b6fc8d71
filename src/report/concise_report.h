// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/report.h"
#include "src/report/summary_counts.h"

namespace lockstep {

/// `--format concise`: "FILE:LINE:COLUMN: LS001 sentence", a line for each finding, for editors and problem matchers;
/// and a line that counts.
class ConciseReporter : public Reporter {
 public:
  ConciseReporter(const ReportOptions& options, Write write)
      : options_(options), write_(std::move(write)), counts_(options.expectations) {}
  void add(const CheckResult& result) override;
  void finish() override;

 private:
  ReportOptions options_;
  Write write_;
  SummaryCounts counts_;
};

}  // namespace lockstep
