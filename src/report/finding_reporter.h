// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/report.h"
#include "src/report/rule_findings.h"
#include "src/report/run_findings.h"

namespace lockstep {

/// A format that lists findings: it says the same of a scenario's and of a captured run's.
class FindingReporter : public Reporter {
 public:
  explicit FindingReporter(const ReportOptions& options) : options_(options) {}
  void add(const CheckResult& result) override { report(findings_of(result, options_.expectations)); }
  void add(const VerifyResult& result) override { report(findings_of(result)); }

 protected:
  virtual void report(const FileFindings& file) = 0;
  const ReportOptions& options() const { return options_; }

 private:
  ReportOptions options_;
};

}  // namespace lockstep
