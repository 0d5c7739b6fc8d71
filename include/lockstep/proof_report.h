// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/prove.h"
#include "lockstep/report.h"

namespace lockstep {

/// What `lockstep prove` prints of one scenario. `options`: quiet gives one line, verbose every refused size and limit.
std::string proof_text(const Scenario& scenario, const Proof& proof, const ReportOptions& options);
/// Proof::steps as text for people: for each case and class what is held after each step.
std::string proof_steps_text(const Proof& proof);
/// The same findings as one JSON object (docs/report-format.md).
Json proof_json(const Scenario& scenario, const Proof& proof);

}  // namespace lockstep
