// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/importers/scenario_builder.h"

namespace lockstep::importers {

// What Megatron-LM's arguments say about the parts of a model.
void set_megatron_vocabulary(ScenarioBuilder& builder);
void set_megatron_experts(ScenarioBuilder& builder, std::int64_t tp);
void set_megatron_latent_attention(ScenarioBuilder& builder);
void set_megatron_multi_token_prediction(ScenarioBuilder& builder);

}  // namespace lockstep::importers
