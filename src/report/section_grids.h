// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/report.h"
#include "src/report/sections.h"
#include "src/report/style.h"

namespace lockstep::report {

/// The rank grids of the sections, by section: of a few that differ, or with `verbose` of all. One
/// replay for all of them.
std::map<std::size_t, std::string> draw_section_grids(const CheckResult& result, const std::vector<Section>& sections,
                                                      const ReportOptions& options, const Style& style);

}  // namespace lockstep::report
