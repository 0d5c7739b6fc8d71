// SPDX-License-Identifier: Apache-2.0
#include "src/report/markdown_report.h"

#include <fmt/format.h>

#include "src/report/rule_findings.h"
#include "src/report/style.h"

namespace lockstep {

namespace {

// Together below GitHub's limit of 1 MiB for a step.
constexpr std::size_t most_rows_bytes = 300'000, most_details_bytes = 600'000;

/// Text that is to be read as it is, in a table's cell as well.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : one_line_text(text)) {
    if (std::string_view("\\`*_{}[]<>#|~").find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

/// Text between backticks, as many as it takes.
std::string code(std::string_view text) {
  std::string quotes = "`";
  while (text.find(quotes) != std::string_view::npos) quotes += '`';
  const bool spaced = quotes.size() > 1;
  return fmt::format("{0}{1}{2}{1}{0}", quotes, spaced ? " " : "", one_line_text(text));
}

std::string details_of(const CheckResult& result, const std::vector<RuleFinding>& findings) {
  std::string text = fmt::format("\n<details>\n<summary>{}: {}</summary>\n\n", escaped(result.file), name_of(result.verdict));
  for (const RuleFinding& finding : findings) {
    text += fmt::format("**{} {}**, line {}: {}\n\n", finding.rule().id, finding.rule().name, finding.place.line,
                        escaped(finding.message));
    for (const std::string& line : finding.lines) text += fmt::format("- {}\n", code(line));
    if (!finding.lines.empty()) text += "\n";
  }
  return text + "</details>\n";
}

}  // namespace

void MarkdownReporter::add(const CheckResult& result) {
  const std::vector<RuleFinding> findings = rule_findings(result, options_.expectations);
  counts_.add(result, findings.size());
  if (findings.empty() && options_.quiet) return;
  const std::string_view sign = !findings.empty() ? "❌" : "✅";
  std::string what = is_expected_mistake(result) ? "as expected" : "";
  if (!result.blame.empty()) what = fmt::format("{}{}", what.empty() ? "" : what + ": ", code(result.blame.front().step));
  std::string row =
      fmt::format("| {} | {} | {} | {} |\n", sign, code(result.file), name_of(result.verdict), what);
  // A pipe ends a cell even between backticks.
  if (result.file.find('|') != std::string::npos)
    row = fmt::format("| {} | {} | {} | {} |\n", sign, escaped(result.file), name_of(result.verdict), what);
  if (rows_.size() + row.size() > most_rows_bytes) {
    ++rows_left_out_;
  } else {
    rows_ += row;
  }
  if (findings.empty()) return;
  const std::string details = details_of(result, findings);
  if (details_.size() + details.size() > most_details_bytes) {
    ++details_left_out_;
  } else {
    details_ += details;
  }
}

void MarkdownReporter::finish() {
  write_(fmt::format("### lockstep\n\n{}.\n", counts_.sentence()));
  if (!rows_.empty()) write_("\n| | file | verdict | step at fault |\n|---|---|---|---|\n" + rows_);
  if (rows_left_out_ > 0) write_(fmt::format("\n{} are left out of the table.\n", counted(rows_left_out_, "file")));
  write_(details_);
  if (details_left_out_ > 0)
    write_(fmt::format("\nWhat was found in {} is left out.\n", counted(details_left_out_, "file")));
}

}  // namespace lockstep
