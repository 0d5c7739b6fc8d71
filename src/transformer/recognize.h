// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/scenario.h"
#include "src/transformer/config.h"

namespace lockstep::transformer {

/// The transformer that a scenario's preset describes. Throws InputError at the preset for a model that this engine
/// cannot run, and at a parameter that it would hold in another shape, or not at all.
Config recognize(const Scenario& scenario);

}  // namespace lockstep::transformer
