// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "lockstep/report.h"
#include "src/report/finding_reporters.h"
#include "src/report/html_report.h"
#include "src/report/json_report.h"
#include "src/report/junit_report.h"
#include "src/report/text_report.h"

namespace lockstep {

namespace {

struct Kind {
  std::string_view name;
  std::string_view purpose;  // "for people"
  std::unique_ptr<Reporter> (*make)(const ReportOptions& options, Write write);
};

template <typename T>
std::unique_ptr<Reporter> make(const ReportOptions& options, Write write) {
  return std::make_unique<T>(options, std::move(write));
}

// One line for each format.
constexpr Kind kinds[] = {
    {"text", "for people", make<report::TextReporter>},
    {"json", "for programs", make<report::JsonReporter>},
    {"concise", "a line for each finding, for editors", make<report::ConciseReporter>},
    {"junit", "XML, for lists of test cases", make<report::JunitReporter>},
    {"sarif", "for code scanning", make<report::SarifReporter>},
    {"github", "annotations of a workflow's job", make<report::GithubReporter>},
    {"gitlab", "a Code Quality report", make<report::GitlabReporter>},
    {"markdown", "for comments and job summaries", make<report::MarkdownReporter>},
    {"html", "a page to look at", make<report::HtmlReporter>},
};

}  // namespace

const std::vector<std::string>& report_kinds() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Kind& kind : kinds) list.emplace_back(kind.name);
    return list;
  }();
  return names;
}

std::string report_kinds_help() {
  std::string text;
  for (const Kind& kind : kinds) text += fmt::format("{}{}, {}", text.empty() ? "" : "; ", kind.name, kind.purpose);
  return text;
}

std::unique_ptr<Reporter> make_reporter(std::string_view kind, const ReportOptions& options, Write write) {
  for (const Kind& one : kinds) {
    if (one.name == kind) return one.make(options, std::move(write));
  }
  return nullptr;
}

}  // namespace lockstep
