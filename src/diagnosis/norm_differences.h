// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/comparison.h"
#include "lockstep/symbolic.h"

namespace lockstep::diagnosis {

/// What norms count otherwise in one of two results, by parameter: one rank stands for all. Where one of them counts
/// nothing at all, that alone.
std::vector<NormDifference> norm_differences(const Model& old_model, const SymbolicResult& before,
                                             const Model& new_model, const SymbolicResult& after);

}  // namespace lockstep::diagnosis
