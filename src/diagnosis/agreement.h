// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/check.h"

namespace lockstep {

/// What the engines of `result` say differently about values, with the command that replays it;
/// "" where they agree or one of them did not run. Counts and ownership are the symbolic engine's
/// alone.
std::string find_disagreement(const CheckResult& result, const CheckOptions& options);

/// The first difference between what the symbolic and the transformer engine found about values: buffers that are right
/// for one of them, and coefficients of the contributions that wrong ones are made of. "" where they agree, where one
/// of them did not run, and where the file edits the model, which the symbolic engine cannot see.
///
/// Real gradients hide what is multiplied by zero: a buffer that is right for the transformer alone is a difference
/// only where the symbolic engine finds it wrong on elements on which a real gradient shows it.
std::string compare_with_transformer(const CheckResult& result);

/// Whether the gradients of the scenario's model lie as the scenario claims. The symbolic engine takes its word for it.
bool placements_hold(const Scenario& scenario, std::uint64_t seed);

}  // namespace lockstep
