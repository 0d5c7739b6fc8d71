// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/base/counted.h"
#include "src/report/clean_text.h"
#include "src/report/finding_reporters.h"
#include "src/report/rule_findings.h"
#include "src/report/style.h"

namespace lockstep::report {

namespace {

// Together below GitHub's limit of 1 MiB for a step.
constexpr std::size_t most_rows_bytes = 300'000, most_details_bytes = 600'000;

std::string details_of(const FileFindings& file, std::string_view docs_url) {
  std::string text = fmt::format("\n<details>\n<summary><code>{}</code>: {}</summary>\n\n",
                                 markup_text(one_line_text(file.file)), file.verdict);
  for (const RuleFinding& finding : file.findings) {
    const std::string name = fmt::format("{} {}", finding.rule().id, finding.rule().name);
    const std::string url = rule_url(finding.rule(), docs_url);
    const std::string other = finding.place.file == file.file ? "" : markdown_code(finding.place.file) + " ";
    text += fmt::format("**{}**, {}line {}: {}\n\n", url.empty() ? name : fmt::format("[{}]({})", name, url), other,
                        finding.place.line, markdown_text(finding.message));
    for (const std::string& line : finding.lines) text += fmt::format("- {}\n", markdown_code(line));
    if (!finding.lines.empty()) text += "\n";
  }
  return text + "</details>\n";
}

}  // namespace

void MarkdownReporter::report(const FileFindings& file) {
  counts_.add(file);
  if (file.findings.empty() && options().quiet) return;
  const std::string_view sign = !file.findings.empty() ? "❌" : file.left_out ? "➖" : "✅";
  std::vector<std::string> words;
  if (file.left_out) words.push_back("no `expect`");
  if (file.expected_mistake) words.push_back("as expected");
  if (!file.step.empty()) words.push_back(markdown_cell(file.step));
  const std::string row =
      fmt::format("| {} | {} | {} | {} |\n", sign, markdown_cell(file.file), file.verdict, fmt::join(words, ": "));
  if (rows_.size() + row.size() > most_rows_bytes) {
    ++rows_left_out_;
  } else {
    rows_ += row;
  }
  if (file.findings.empty()) return;
  const std::string details = details_of(file, options().docs_url);
  if (details_.size() + details.size() > most_details_bytes) {
    ++details_left_out_;
  } else {
    details_ += details;
  }
}

void MarkdownReporter::finish() {
  write_(fmt::format("### lockstep\n\n{}.\n", counts_.sentence()));
  if (!rows_.empty())
    write_(fmt::format("\n| | {} | verdict | step at fault |\n|---|---|---|---|\n", counts_.noun()) + rows_);
  if (rows_left_out_ > 0) write_(fmt::format("\n{} are left out of the table.\n", counted(rows_left_out_, "file")));
  write_(details_);
  if (details_left_out_ > 0)
    write_(fmt::format("\nWhat was found in {} is left out.\n", counted(details_left_out_, "file")));
}

}  // namespace lockstep::report
