// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/symbolic/parametric/find_cases.h"

namespace lockstep::parametric {

/// Sizes of an axis, or numbers of micro-batches, that belong to one case, and some of them.
struct CaseRange {
  std::optional<int> exact;  ///< none: all from `least` on
  int least = 1, first = 1, second = 1, last = 1;
  std::string unseen;  ///< why none of these sizes is looked at; "" where some are
};

/// The sizes of an axis, in ranges that are a case each: single ones first, and at the end all from some size on, where
/// there is no end. Empty where no size is allowed.
std::vector<CaseRange> ranges_of(const OpenSizes& together, Axis axis);

}  // namespace lockstep::parametric
