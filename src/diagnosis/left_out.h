// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "lockstep/check.h"
#include "lockstep/schedule.h"

namespace lockstep::diagnosis {

struct LeftOut {
  Blame blame;
  Step missing;          ///< the inserted step, for what is left out alone
  bool all_told = true;  ///< false: `missing` is for what is reduced as well, as there is too much to be named
};

/// A step of the scenario that reduces over the same groups as a step that a repair inserts, and that misses what is
/// wrong, or a part of it that no other such step reduces: by its parameters, by the ranks that it runs on, or by its
/// buffer. It is at fault rather than a new one. Nothing where there is none, and where the inserted step is no
/// reduction.
std::optional<LeftOut> left_out_by(const CheckResult& result, const Step& inserted);

}  // namespace lockstep::diagnosis
