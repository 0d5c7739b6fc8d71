// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/schedule.h"

namespace lockstep {

/// What the parametric engine finds for a schedule at its own sizes. It knows nothing of single ranks: parameters that
/// behave alike go through the steps once, for all ranks together, so that the cost does not grow with the layout.
struct ParametricResult {
  enum class Verdict { match, mismatch, race, undecided };
  Verdict verdict = Verdict::undecided;
  int step = 0;                ///< mismatch, race: the optimizer step
  std::string undecided_step;  ///< the step that it cannot follow; "" where it is the scenario as a whole
  std::string why;             ///< undecided: half a sentence, "it divides by a sum"
  std::vector<int> wrong;      ///< mismatch: logical parameters that stand for those that are wrong
  int classes = 0;             ///< of parameters that behave alike
};

/// Decides a schedule at its own sizes. Throws InputError as walk() does where a geometry cannot cut.
/// Complexity: classes of parameters × steps, whatever the number of ranks is; reading the schedule is not counted.
ParametricResult run_parametric(const Schedule& schedule);

}  // namespace lockstep
