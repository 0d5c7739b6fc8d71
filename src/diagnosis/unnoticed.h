// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/check.h"

namespace lockstep::diagnosis {

/// Who would not have noticed: a comparison of replicas, the gradient norm, an optimizer that divides by the gradient's
/// size, a clip by the norm, a tolerance. Full sentences.
std::vector<std::string> who_would_not_notice(const CheckResult& result);

}  // namespace lockstep::diagnosis
