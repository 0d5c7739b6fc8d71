// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/report/finding_reporter.h"
#include "src/report/json_writer.h"

namespace lockstep {

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

}  // namespace lockstep
