// SPDX-License-Identifier: Apache-2.0
#include "src/report/junit_report.h"

#include <fmt/format.h>

#include <filesystem>

#include "src/report/clean_text.h"
#include "src/report/run_findings.h"

namespace lockstep::report {

namespace {

/// An attribute's value on one line.
std::string attribute(std::string_view text) { return markup_text(one_line_text(text)); }

double seconds_of(const CheckResult& result) {
  double seconds = 0;
  for (const EngineResult& engine : result.engines) seconds += engine.seconds;
  return seconds;
}

/// What could not be checked, and not what is wrong.
bool is_error(Mistake kind) {
  return kind == Mistake::invalid_file || kind == Mistake::not_checked || kind == Mistake::undecided;
}

/// All findings of a file in one failure: a test case has at most one.
std::string failure(const std::vector<RuleFinding>& findings, bool error) {
  std::string text;
  for (const RuleFinding& finding : findings) {
    text += fmt::format("{} {}:{}: {}\n", finding.rule().id, file_text(finding.place.file), finding.place.line,
                        finding.message);
    for (const std::string& line : finding.lines) text += "  " + line + "\n";
  }
  const std::string_view tag = error ? "error" : "failure";
  return fmt::format("      <{} type=\"{}\" message=\"{}\">{}</{}>\n", tag, findings.front().rule().id,
                     attribute(findings.front().message), markup_text(clean_text(text)), tag);
}

}  // namespace

void JunitReporter::add(const CheckResult& result) {
  const std::filesystem::path path(result.file);
  const FileFindings file = findings_of(result, options_.expectations);
  const std::vector<RuleFinding>& findings = file.findings;
  Case one;
  one.suite = path.has_parent_path() ? path.parent_path().string() : ".";
  one.name = path.filename().string();
  one.seconds = seconds_of(result);
  one.skipped = file.left_out;
  if (file.expected_mistake) one.expected = file.verdict;
  add(one, findings);
}

void JunitReporter::add(const VerifyResult& result) {
  for (const RunCase& one : run_cases(result)) add({result.run, one.name, 0, false, ""}, one.findings);
}

void JunitReporter::add(const Case& one, const std::vector<RuleFinding>& findings) {
  const bool error = !findings.empty() && is_error(findings.front().kind);
  Suite& suite = suites_[one.suite];
  ++suite.tests;
  suite.failures += findings.empty() || error ? 0 : 1;
  suite.errors += error ? 1 : 0;
  suite.skipped += one.skipped ? 1 : 0;
  suite.seconds += one.seconds;
  // No file and line, which some readers know: the schema of Jenkins' xUnit plugin refuses a report that has them, and
  // the text of a finding begins with them.
  suite.cases += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.6f}\"", attribute(one.suite),
                             attribute(one.name), one.seconds);
  std::string inside;
  if (!findings.empty()) inside += failure(findings, error);
  if (one.skipped) inside += "      <skipped message=\"the file has no `expect`\"/>\n";
  if (!one.expected.empty()) {
    ++suite.expected;
    inside += fmt::format("      <system-out>{}, as the file's `expect` says</system-out>\n", one.expected);
  }
  suite.cases += inside.empty() ? "/>\n" : fmt::format(">\n{}    </testcase>\n", inside);
}

void JunitReporter::finish() {
  Suite all;
  for (const auto& [folder, suite] : suites_) {
    all.tests += suite.tests;
    all.failures += suite.failures;
    all.errors += suite.errors;
    all.skipped += suite.skipped;
    all.seconds += suite.seconds;
  }
  write_("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
  write_(fmt::format("<testsuites name=\"lockstep\" tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.6f}\">\n",
                     all.tests, all.failures, all.errors, all.seconds));
  for (const auto& [folder, suite] : suites_) {
    write_(fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.6f}\">\n",
        attribute(folder), suite.tests, suite.failures, suite.errors, suite.skipped, suite.seconds));
    if (suite.expected > 0) {
      write_(fmt::format(
          "    <properties>\n      <property name=\"files that expect a mistake\" value=\"{}\"/>\n    </properties>\n",
          suite.expected));
    }
    write_(suite.cases);
    write_("  </testsuite>\n");
  }
  write_("</testsuites>\n");
}

}  // namespace lockstep::report
