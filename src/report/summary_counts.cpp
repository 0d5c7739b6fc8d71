// SPDX-License-Identifier: Apache-2.0
#include "src/report/summary_counts.h"

#include <fmt/format.h>

#include "src/base/counted.h"
#include "src/report/style.h"

namespace lockstep::report {

void SummaryCounts::add(const FileFindings& file) {
  ++files_;
  runs_ = file.is_run;
  if (file.match) ++matches_;
  if (file.expected_mistake) ++expected_;
  if (file.left_out) ++left_out_;
  findings_ += file.findings.size();
}

std::string SummaryCounts::sentence() const {
  const int wrong = files_ - matches_;
  std::string text =
      fmt::format("{}: {} match{}, {} {} not; {}", counted(files_, noun()), matches_, matches_ == 1 ? "es" : "", wrong,
                  wrong == 1 ? "does" : "do", counted(findings_, "finding"));
  // Whoever hides a mistake behind an `expect` is seen to do so.
  if (expected_ > 0)
    text += fmt::format("; {} expect{} a mistake", counted(expected_, "file"), expected_ == 1 ? "s" : "");
  if (left_out_ > 0)
    text += fmt::format("; {} {} no `expect` and {} left out", counted(left_out_, "file"),
                        left_out_ == 1 ? "has" : "have", left_out_ == 1 ? "is" : "are");
  return text;
}

}  // namespace lockstep::report
