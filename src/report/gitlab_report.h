// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/report.h"
#include "src/report/json_writer.h"

namespace lockstep {

/// `--format gitlab`: a Code Quality report, which GitLab shows in a merge request.
/// Source: GitLab's documentation, "Code Quality", section on the report's format.
class GitlabReporter : public Reporter {
 public:
  GitlabReporter(const ReportOptions& options, Write write) : options_(options), json_(std::move(write)) {
    json_.begin_array();
  }
  void add(const CheckResult& result) override;
  void finish() override {
    json_.end_array();
    json_.finish();
  }

 private:
  ReportOptions options_;
  JsonWriter json_;
};

}  // namespace lockstep
