// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/report.h"

namespace lockstep {

/// `lockstep report`: all results as one page, made of their JSON reports alone and in memory until finish().
class HtmlReporter : public Reporter {
 public:
  HtmlReporter(const ReportOptions&, Write write) : write_(std::move(write)) {}
  void add(const CheckResult& result) override;
  void finish() override;

 private:
  Write write_;
  std::vector<std::string> reports_;  ///< as JSON
};

}  // namespace lockstep
