// SPDX-License-Identifier: Apache-2.0
#include "src/report/summary_counts.h"

#include <fmt/format.h>

#include "src/report/rule_findings.h"
#include "src/report/style.h"

namespace lockstep {

void SummaryCounts::add(const CheckResult& result, std::size_t findings) {
  ++files_;
  if (result.verdict == Verdict::match) ++matches_;
  if (is_expected_mistake(result)) ++expected_;
  findings_ += findings;
}

std::string SummaryCounts::sentence() const {
  const int wrong = files_ - matches_;
  std::string text = fmt::format("{}: {} match{}, {} {} not; {}", counted(files_, "file"), matches_,
                                 matches_ == 1 ? "es" : "", wrong, wrong == 1 ? "does" : "do",
                                 counted(static_cast<std::int64_t>(findings_), "finding"));
  // Whoever hides a mistake behind an `expect` is seen to do so.
  if (expected_ > 0)
    text += fmt::format("; {} expect{} a mistake", counted(expected_, "file"), expected_ == 1 ? "s" : "");
  return text;
}

std::string without_control_characters(std::string_view text) {
  std::string result;
  for (const char c : text) result += (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f ? ' ' : c;
  return result;
}

std::string one_line_text(std::string_view text) {
  std::string result = without_control_characters(text);
  for (char& c : result) c = c == '\n' ? ' ' : c;
  while (!result.empty() && result.back() == ' ') result.pop_back();
  return result;
}

}  // namespace lockstep
