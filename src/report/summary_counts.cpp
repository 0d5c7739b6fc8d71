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
  if (expectations_ && has_no_expectation(result)) ++left_out_;
  findings_ += findings;
}

std::string SummaryCounts::sentence() const {
  const int wrong = files_ - matches_;
  std::string text =
      fmt::format("{}: {} match{}, {} {} not; {}", counted(files_, "file"), matches_, matches_ == 1 ? "es" : "", wrong,
                  wrong == 1 ? "does" : "do", counted(static_cast<std::int64_t>(findings_), "finding"));
  // Whoever hides a mistake behind an `expect` is seen to do so.
  if (expected_ > 0)
    text += fmt::format("; {} expect{} a mistake", counted(expected_, "file"), expected_ == 1 ? "s" : "");
  if (left_out_ > 0)
    text += fmt::format("; {} {} no `expect` and {} left out", counted(left_out_, "file"),
                        left_out_ == 1 ? "has" : "have", left_out_ == 1 ? "is" : "are");
  return text;
}

}  // namespace lockstep
