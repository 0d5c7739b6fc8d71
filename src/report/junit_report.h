// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "lockstep/report.h"
#include "src/report/rule_findings.h"

namespace lockstep::report {

/// `--format junit`: JUnit XML, a test suite for each folder and a test case for each file; of a captured run a suite,
/// and a case for each parameter, for the collectives and for the run being complete. In the part of it that Jenkins,
/// GitLab, Azure and GitHub's reporters all read. What is wrong in a schedule is a failure, what could not be checked
/// an error; how many files expect a mistake is a property of the suite. The suites' totals stand in front of their
/// cases, so the text is held until the end. Source: the XSD of Jenkins' xUnit plugin (junit-10.xsd).
class JunitReporter : public Reporter {
 public:
  JunitReporter(const ReportOptions& options, Write write) : options_(options), write_(std::move(write)) {}
  void add(const CheckResult& result) override;
  void add(const VerifyResult& result) override;
  void finish() override;

 private:
  struct Case {
    std::string suite, name;
    double seconds = 0;
    bool skipped = false;
    std::string expected;  ///< the verdict that the file expects, and that is wrong; ""
  };
  struct Suite {
    std::string cases;
    int tests = 0, failures = 0, errors = 0, skipped = 0, expected = 0;
    double seconds = 0;
  };

  void add(const Case& one, const std::vector<RuleFinding>& findings);

  ReportOptions options_;
  Write write_;
  std::map<std::string, Suite> suites_;  // by folder
};

}  // namespace lockstep::report
