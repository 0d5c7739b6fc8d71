// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "src/report/rule_findings.h"

namespace lockstep::report {

/// What a report says of all its files in one sentence.
class SummaryCounts {
 public:
  void add(const FileFindings& file);
  /// "1 run: 1 matches, 0 do not; 0 findings",
  /// "3 files: 2 match, 1 does not; 1 finding; 1 file expects a mistake; 1 file has no `expect` and is left out".
  std::string sentence() const;
  /// "file", or "run".
  std::string_view noun() const { return runs_ ? "run" : "file"; }
  int files() const { return files_; }
  int expected() const { return expected_; }
  std::size_t findings() const { return findings_; }

 private:
  bool runs_ = false;
  int files_ = 0, matches_ = 0, expected_ = 0, left_out_ = 0;
  std::size_t findings_ = 0;
};

}  // namespace lockstep::report
