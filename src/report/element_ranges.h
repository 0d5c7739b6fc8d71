// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/check.h"
#include "lockstep/intervals.h"

namespace lockstep::report {

/// The elements of a logical parameter in stretches that are whole on every rank after every step of
/// the reported optimizer step: of one content and one owner. Ascending.
/// Complexity: one run of the symbolic engine, and a look at each buffer for each step that touches it.
std::vector<Interval> element_ranges(const CheckResult& result, int logical);

}  // namespace lockstep::report
