// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "src/base/counted.h"
#include "src/report/clean_text.h"
#include "src/report/finding_reporters.h"
#include "src/report/rule_findings.h"

namespace lockstep::report {

namespace {

constexpr std::size_t most_shown = 10;

/// Of a message; of a property's value `:` and `,` as well.
std::string escaped(std::string_view text, bool property) {
  std::string result;
  for (const char c : text) {
    if (c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ','))) {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

void GithubReporter::report(const FileFindings& file) {
  counts_.add(file);
  for (const RuleFinding& finding : file.findings) {
    if (shown_ == most_shown) return;
    ++shown_;
    std::string text = finding.message;
    for (const std::string& line : finding.lines) text += "\n" + line;
    // The end column of GitHub is the last one of the mark.
    write_(fmt::format("::error file={},line={},col={},endColumn={},title={}::{}\n",
                       escaped(repository_path(finding.place.file), true), finding.place.line, finding.place.column,
                       std::max(finding.place.column, finding.place.end_column - 1),
                       escaped(fmt::format("{} {}", finding.rule().id, finding.rule().name), true),
                       escaped(clean_text(text), false)));
  }
}

void GithubReporter::finish() {
  if (counts_.findings() > shown_) {
    write_(fmt::format(
        "::notice title=lockstep::{} not shown: GitHub shows {} of a step. The other "
        "reports have them all.\n",
        counted(counts_.findings() - shown_, "more finding") + (counts_.findings() - shown_ == 1 ? " is" : " are"),
        most_shown));
  }
  write_(counts_.sentence() + "\n");
}

}  // namespace lockstep::report
