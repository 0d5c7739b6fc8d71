// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/importers/scenario_builder.h"

namespace lockstep::importers {

/// The model of Megatron-LM's arguments: those that say how it is built but have another default there than in the
/// preset.
void set_megatron_model(ScenarioBuilder& builder, std::int64_t tp);

}  // namespace lockstep::importers
