// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/check.h"
#include "lockstep/report.h"

namespace lockstep::report {

/// What `lockstep repair` found for one file.
struct RepairFindings {
  std::vector<OptionRepair> options;  ///< of the framework, the best first
  int options_tried = 0;              ///< of which another value was tried
  int values_tried = 0;
  std::string options_cut_off;  ///< as cut_off
  std::vector<Repair> repairs;  ///< the best first; those alike are one
  int found = 0;                ///< all of them
  int tried = 0;                ///< schedules that were replayed
  std::string cut_off;          ///< why not all edits were tried: half a sentence; "" where they were
  double seconds = 0;
};

void repair_text(const CheckResult& result, const RepairFindings& findings, bool color, const Write& write);
void repair_json(const CheckResult& result, const RepairFindings& findings, const Write& write);

}  // namespace lockstep::report
