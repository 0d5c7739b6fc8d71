// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/check.h"

namespace lockstep {

/// What a report says of all its files in one sentence.
class SummaryCounts {
 public:
  void add(const CheckResult& result, std::size_t findings);
  /// "3 files: 2 match, 1 does not; 1 finding; 1 file expects a mistake".
  std::string sentence() const;
  int files() const { return files_; }
  int expected() const { return expected_; }
  std::size_t findings() const { return findings_; }

 private:
  int files_ = 0, matches_ = 0, expected_ = 0;
  std::size_t findings_ = 0;
};

/// A text of several lines as one: line ends and control characters become spaces.
std::string one_line_text(std::string_view text);
/// The same, with line feeds kept.
std::string without_control_characters(std::string_view text);

}  // namespace lockstep
