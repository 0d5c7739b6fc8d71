// SPDX-License-Identifier: Apache-2.0
#include "src/report/junit_report.h"

#include <fmt/format.h>

#include <filesystem>

#include "src/report/rule_findings.h"

namespace lockstep {

namespace {

/// Text as XML 1.0 takes it, in an element or an attribute. Control characters do not exist there, not even as entities.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\n':
        result += "&#10;";
        break;
      case '\t':
        result += "&#9;";
        break;
      default:
        result += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return result;
}

double seconds_of(const CheckResult& result) {
  return result.symbolic_seconds + result.host_seconds + result.mpi_seconds + result.cuda_seconds +
         result.nccl_seconds + result.transformer_seconds;
}

/// All findings of a file in one failure: a test case has at most one.
std::string failure(const std::vector<RuleFinding>& findings, bool error) {
  std::string text;
  for (const RuleFinding& finding : findings) {
    text += fmt::format("{} {}:{}: {}\n", finding.rule().id, finding.place.file, finding.place.line, finding.message);
    for (const std::string& line : finding.lines) text += "  " + line + "\n";
  }
  // Line feeds are legible in an element, and would be lost in an attribute.
  std::string body = escaped(text);
  for (std::size_t at = 0; (at = body.find("&#10;", at)) != std::string::npos;) body.replace(at, 5, "\n");
  const std::string_view tag = error ? "error" : "failure";
  return fmt::format("      <{} type=\"{}\" message=\"{}\">{}</{}>\n", tag, findings.front().rule().id,
                     escaped(one_line_text(findings.front().message)), body, tag);
}

}  // namespace

void JunitReporter::add(const CheckResult& result) {
  const std::filesystem::path path(result.file);
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const std::vector<RuleFinding> findings = rule_findings(result, options_.expectations);
  const bool skipped =
      options_.expectations && findings.empty() && result.scenario != nullptr && !result.scenario->expect;
  const bool error = !findings.empty() && (findings.front().kind == RuleKind::invalid_file ||
                                           findings.front().kind == RuleKind::not_checked);
  Suite& suite = suites_[folder];
  ++suite.tests;
  suite.failures += findings.empty() || error ? 0 : 1;
  suite.errors += error ? 1 : 0;
  suite.skipped += skipped ? 1 : 0;
  suite.seconds += seconds_of(result);
  const int line = findings.empty() ? 1 : findings.front().place.line;
  suite.cases += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.6f}\" file=\"{}\" line=\"{}\"",
                             escaped(folder), escaped(path.filename().string()), seconds_of(result),
                             escaped(result.file), line);
  std::string inside;
  if (!findings.empty()) inside += failure(findings, error);
  if (skipped) inside += "      <skipped message=\"the file has no `expect`\"/>\n";
  if (is_expected_mistake(result)) {
    inside += fmt::format("      <system-out>{}, as the file's `expect` says</system-out>\n", name_of(result.verdict));
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
        escaped(folder), suite.tests, suite.failures, suite.errors, suite.skipped, suite.seconds));
    write_(suite.cases);
    write_("  </testsuite>\n");
  }
  write_("</testsuites>\n");
}

}  // namespace lockstep
