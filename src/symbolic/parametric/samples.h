// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/gradient_state.h"
#include "src/symbolic/parametric/evaluation.h"

namespace lockstep::parametric {

/// A rank that stands for all that are related to the others, and to the elements, as it is.
struct Sample {
  int rank = 0;
  int buffer = -1;  ///< index into its LocalModel; -1 where it does not hold the parameter
  const Cell* cell = nullptr;
  Interval elements;
};

/// Ranks on which something of a class is wrong in an optimizer step, one of each kind, for one of its parameters; at
/// most `most`. Throws OutOfReach.
std::vector<Sample> samples_of(const World& world, const ClassResult& result, Evaluation& evaluation,
                               Stretches& stretches, int logical, int optimizer_step, std::size_t most);

}  // namespace lockstep::parametric
