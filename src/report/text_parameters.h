// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/report.h"
#include "src/report/style.h"

namespace lockstep::report {

/// The sections of the text report about parameters: formulas, hashes, the rank grid, the turning
/// point. Parameters that differ in layer numbers alone share a section.
void write_text_parameters(const CheckResult& result, const ReportOptions& options, const Style& style,
                           const Write& write);

}  // namespace lockstep::report
