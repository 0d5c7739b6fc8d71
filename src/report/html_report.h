// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/report.h"

namespace lockstep::report {

/// `lockstep report`: all results as one page, made of their JSON reports alone and in memory until finish(). Of
/// captured runs a page of tables, without a script.
class HtmlReporter : public Reporter {
 public:
  HtmlReporter(const ReportOptions&, Write write) : write_(std::move(write)) {}
  void add(const CheckResult& result) override;
  void add(const VerifyResult& result) override;
  void finish() override;

 private:
  void write_scenarios() const;
  void write_runs() const;

  Write write_;
  std::vector<std::string> reports_;  ///< as JSON
  std::string runs_;                  ///< as HTML
};

}  // namespace lockstep::report
