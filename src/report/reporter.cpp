// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report.h"
#include "src/report/concise_report.h"
#include "src/report/github_report.h"
#include "src/report/gitlab_report.h"
#include "src/report/json_report.h"
#include "src/report/junit_report.h"
#include "src/report/markdown_report.h"
#include "src/report/sarif_report.h"
#include "src/report/text_report.h"

namespace lockstep {

namespace {

struct Kind {
  std::string_view name;
  std::unique_ptr<Reporter> (*make)(const ReportOptions& options, Write write);
};

template <typename T>
std::unique_ptr<Reporter> make(const ReportOptions& options, Write write) {
  return std::make_unique<T>(options, std::move(write));
}

constexpr Kind kinds[] = {
    {"text", make<TextReporter>},     {"json", make<JsonReporter>},     {"concise", make<ConciseReporter>},
    {"junit", make<JunitReporter>},   {"sarif", make<SarifReporter>},   {"github", make<GithubReporter>},
    {"gitlab", make<GitlabReporter>}, {"markdown", make<MarkdownReporter>}};

}  // namespace

const std::vector<std::string>& report_kinds() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Kind& kind : kinds) list.emplace_back(kind.name);
    return list;
  }();
  return names;
}

std::unique_ptr<Reporter> make_reporter(std::string_view kind, const ReportOptions& options, Write write) {
  for (const Kind& one : kinds) {
    if (one.name == kind) return one.make(options, std::move(write));
  }
  return nullptr;
}

}  // namespace lockstep
