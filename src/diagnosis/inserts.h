// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/diagnosis/candidates.h"
#include "src/diagnosis/step_list.h"

namespace lockstep::diagnosis {

/// Steps that may be missing, at each place where they could stand: a collective of each kind over each group, a
/// factor, a clear, a wait, a part of the norm, the backward of a use.
std::vector<Candidate> insertions(const std::vector<ListedStep>& steps, const CandidateValues& values);

}  // namespace lockstep::diagnosis
