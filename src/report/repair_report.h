// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/check.h"
#include "lockstep/report.h"
#include "src/diagnosis/option_repairs.h"
#include "src/diagnosis/repairs.h"

namespace lockstep::report {

/// What `lockstep repair` found for one file.
struct RepairFindings {
  diagnosis::OptionRepairs options;  ///< of the framework
  std::string lost_ties;             ///< what ties are lost, and whether tying again is right; "" where none is
  std::vector<Repair> repairs;       ///< the best first; those alike are one
  int found = 0;                     ///< all of them
  std::size_t without_norm = 0;      ///< match only as a norm or a clip loses a gradient, and are not among those found
  int tried = 0;                     ///< schedules that were replayed
  std::string cut_off;               ///< why not all edits were tried: half a sentence; "" where they were
  diagnosis::NotTried not_tried;     ///< then
  double seconds = 0;
};

void repair_text(const CheckResult& result, const RepairFindings& findings, bool color, const Write& write);
void repair_json(const CheckResult& result, const RepairFindings& findings, const Write& write);

}  // namespace lockstep::report
