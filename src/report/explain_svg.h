// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/report.h"

namespace lockstep::report {

/// The ranks before and after the step at fault as a picture, or without one after the last two steps that change
/// something, beside what one device has. `options.step` chooses the step after which is drawn, alone. Throws what
/// explain_text throws.
void explain_svg(const CheckResult& result, const ExplainOptions& options, const Write& write);

}  // namespace lockstep::report
