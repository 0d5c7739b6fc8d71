// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/live.h"
#include "src/report/rule_findings.h"

namespace lockstep::report {

/// What is wrong in a captured run: a finding for each kind of mistake, for each process group whose collectives do not
/// meet, and for everything that is missing.
FileFindings findings_of(const VerifyResult& result);

/// A part of a run that is right or not, by itself.
struct RunCase {
  std::string name;
  std::vector<RuleFinding> findings;  ///< empty where it is right
};
/// One for each parameter of which anything was compared, then the collectives, then whether the run is complete.
/// Complexity: near linear in the results.
std::vector<RunCase> run_cases(const VerifyResult& result);

}  // namespace lockstep::report
