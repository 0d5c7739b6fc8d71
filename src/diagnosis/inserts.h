// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "src/diagnosis/candidates.h"
#include "src/diagnosis/step_list.h"

namespace lockstep::diagnosis {

/// Steps that may be missing, at each place where they could stand: a collective of each kind over each group, a
/// factor, a clear, a wait, a part of the norm, the backward of a use.
std::vector<Candidate> insertions(const std::vector<ListedStep>& steps, const CandidateValues& values);

/// An inserted mean over ranks said as DDP and Megatron-LM do: a scale by one over the ranks, and a sum. Nothing for
/// other edits.
std::optional<Candidate> in_two_steps(const Candidate& mean);

}  // namespace lockstep::diagnosis
