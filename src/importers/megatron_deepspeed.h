// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/importers/megatron_sources.h"
#include "src/importers/scenario_builder.h"

namespace lockstep::importers {

/// Whether --deepspeed is given.
bool hands_over_to_deepspeed(const Settings& settings);

/// Megatron-DeepSpeed: Megatron's layers and layout, whose gradients DeepSpeed reduces as its own configuration says.
/// The keys of that are among the settings of `source`.
Imported import_megatron_deepspeed(const ImportRequest& request, MegatronSource source, Diagnostics& diagnostics);

/// Mistakes at what Megatron-DeepSpeed reads with --deepspeed alone.
void refuse_without_deepspeed(ScenarioBuilder& builder);

}  // namespace lockstep::importers
