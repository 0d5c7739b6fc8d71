// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "lockstep/scenario.h"
#include "src/live/captured_run.h"

namespace lockstep::live {

/// record_run() of a run that was read and verified already, in these optimizer steps and all parameters, with every
/// coefficient; `scenario`, if given, becomes the scenario as it was read, and `scaled_unseen` whether something
/// multiplies gradients that the capture has not seen, so that what it has seen is not in the scenario.
RecordedRun record(const CapturedRun& run, const VerifyResult& verified,
                   std::shared_ptr<const Scenario>* scenario = nullptr, bool* scaled_unseen = nullptr);

/// Fills in the steps at fault of a recorded scenario, and the edits that mend it.
void blame(std::shared_ptr<const Scenario> scenario, VerifyResult& result);

/// `document`, read. Throws InputError where it is not valid, as with a size that no scenario has.
std::shared_ptr<const Scenario> read_recorded(const Json& document);

}  // namespace lockstep::live
