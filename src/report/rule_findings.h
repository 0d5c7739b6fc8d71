// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/check.h"
#include "src/report/rules.h"
#include "src/report/step_place.h"

namespace lockstep {

/// One finding as programs that gather findings want it: a rule, a place, a sentence.
struct RuleFinding {
  RuleKind kind = RuleKind::wrong_factor;
  std::string message;             ///< its first sentence stands alone
  std::vector<std::string> lines;  ///< more, to read below it
  FileStretch place;
  /// Equal for the same finding in another run, whatever lines, ranks and sizes are then; different for others of the
  /// same file. 16 hexadecimal digits, and ":N" from the second of equals on.
  std::string fingerprint;

  const Rule& rule() const { return rule_of(kind); }
};

/// Every finding of a result, those of the verdict first; empty for a match. Parameters that are wrong alike are one
/// finding. With `expectations` what the file's `expect` says is no finding, what it says and is not so is one, and a
/// file without an `expect` has none.
std::vector<RuleFinding> rule_findings(const CheckResult& result, bool expectations);

/// Whether the file's `expect` says that something is wrong, and it is as it says: findings that somebody has seen and
/// put on record, the one way to suppress them.
bool is_expected_mistake(const CheckResult& result);

/// Whether there is no `expect` to hold the result against: `lockstep test` leaves such a file out.
bool has_no_expectation(const CheckResult& result);

}  // namespace lockstep
