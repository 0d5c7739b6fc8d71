// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/report.h"
#include "src/report/style.h"

namespace lockstep::report {

/// `check --format text`: for people.
class TextReporter : public Reporter {
 public:
  TextReporter(const ReportOptions& options, Write write)
      : options_(options), style_(options.color), write_(std::move(write)) {}
  void add(const CheckResult& result) override;
  void add(const VerifyResult& result) override {
    verify_text(result, options_.quiet, options_.verbose, options_.color, write_);
  }
  void finish() override {}

 private:
  ReportOptions options_;
  Style style_;
  Write write_;
  bool first_ = true;
};

/// " with dp=4, micro_batches=2": what --set has changed, behind the file's name; "" where it has nothing.
std::string changes_text(const Scenario& scenario);
/// The line with the verdict, file, name and title.
std::string verdict_line(const CheckResult& result, const Style& style);
/// "pp 2 × dp 2 = 4 ranks, 2 micro-batches, loss token_mean over uneven tokens".
std::string layout_text(const Scenario& scenario);
/// What a proof leaves open: "open: dp, pp, micro_batches".
std::string open_text(const std::vector<Axis>& axes, bool micro_batches);
/// Who waits for whom, what does not agree, what was touched in flight; "" for other verdicts.
std::string outcome_text(const CheckResult& result, const ReportOptions& options);
/// Wrong counts in the gradient norm, the same on several ranks in one line; "" without any.
std::string norm_text(const CheckResult& result, const ReportOptions& options);

}  // namespace lockstep::report
