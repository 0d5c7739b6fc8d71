// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/check.h"

namespace lockstep::diagnosis {

/// The first divergences of up to 64 wrong buffers that differ in how they are wrong, from one replay.
/// Empty where the symbolic engine did not run or found no wrong value.
std::vector<BufferDivergence> find_divergences(const CheckResult& result);

/// The steps that spoil a gradient for good, each once, in schedule order. Where a gradient is wrong apart from
/// clipping factors, not those that only clip otherwise.
std::vector<Blame> blame_of(const std::vector<BufferDivergence>& divergences);

}  // namespace lockstep::diagnosis
