// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/scenario/expand.h"

namespace lockstep::scenario {

/// Adds to `reading.decided_conditions` on which sizes of the layout the parameters of a model file hang: the
/// conditions by which they are there and are placed, and where anything else than the forms of the built-in models
/// depends on a size, that it is the present one. These forms are padding of a vocabulary that tp cuts, layers that are
/// dealt to the stages of the pipeline in their order, and experts that are dealt to the ep ranks. And at which sizes
/// its names and rules have no value.
void note_sizes_of_model(const OptionValues& sizes, const Json& let, const Json& rules,
                         const std::vector<Json>& parameters, Reading& reading);

}  // namespace lockstep::scenario
