// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/report.h"
#include "src/report/json_writer.h"
#include "src/report/rule_findings.h"
#include "src/report/run_findings.h"
#include "src/report/summary_counts.h"

namespace lockstep::report {

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

/// `--format gitlab`: a Code Quality report, which GitLab shows in a merge request.
/// Source: GitLab's documentation, "Code Quality", section on the report's format.
class GitlabReporter : public FindingReporter {
 public:
  GitlabReporter(const ReportOptions& options, Write write) : FindingReporter(options), json_(std::move(write)) {
    json_.begin_array();
  }
  void finish() override {
    json_.end_array();
    json_.finish();
  }

 private:
  void report(const FileFindings& file) override;

  JsonWriter json_;
};

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

}  // namespace lockstep::report
