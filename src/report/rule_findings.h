// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/check.h"
#include "lockstep/mistake.h"
#include "src/report/step_place.h"

namespace lockstep::report {

/// One finding as programs that gather findings want it: a rule, a place, a sentence.
struct RuleFinding {
  Mistake kind = Mistake::wrong_factor;
  std::string message;             ///< its first sentence stands alone
  std::vector<std::string> lines;  ///< more, to read below it
  FileStretch place;
  /// Equal for the same finding in another run, whatever lines, ranks and sizes are then; different for others of the
  /// same file. 16 hexadecimal digits, and ":N" from the second of equals on.
  std::string fingerprint;

  const Rule& rule() const { return rule_of(kind); }
};

/// Where the page of a rule can be read; "" where `docs_url` (ReportOptions) is.
std::string rule_url(const Rule& rule, std::string_view docs_url);

/// Gives the findings of one file their fingerprints.
class Fingerprints {
 public:
  /// `name`: of the file, wherever it lies.
  explicit Fingerprints(std::string name) : name_(std::move(name)) {}
  /// `what`: what tells this finding from others of its rule and file, without anything that drifts.
  std::string next(const Rule& rule, const std::string& what);

 private:
  std::string name_;
  std::map<std::string, int> seen_;
};

/// What the formats that list findings say of one scenario or captured run.
struct FileFindings {
  std::string file;  ///< of a run its folder
  bool is_run = false;
  std::string_view verdict;
  bool match = false;
  bool failed = false;            ///< the machine failed, or engines disagree
  bool expected_mistake = false;  ///< is_expected_mistake()
  bool left_out = false;          ///< `lockstep test` has no `expect` to hold it against
  std::string step;               ///< at fault; ""
  std::vector<RuleFinding> findings;
};
FileFindings findings_of(const CheckResult& result, bool expectations);

/// A text without what changes from run to run.
std::string without_digits(std::string text);

/// Every finding of a result, those of the verdict first; empty for a match. Parameters that are wrong alike are one
/// finding. With `expectations` what the file's `expect` says is no finding, what it says and is not so is one, and a
/// file without an `expect` has none.
std::vector<RuleFinding> rule_findings(const CheckResult& result, bool expectations);

/// Whether the file's `expect` says that something is wrong, and it is as it says: findings that somebody has seen and
/// put on record, the one way to suppress them.
bool is_expected_mistake(const CheckResult& result);

/// Whether there is no `expect` to hold the result against: `lockstep test` leaves such a file out.
bool has_no_expectation(const CheckResult& result);

}  // namespace lockstep::report
