// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/importers/draft.h"

namespace lockstep::importers {

// What Megatron-LM's arguments say about the parts of a model.
void set_megatron_vocabulary(Draft& draft);
void set_megatron_experts(Draft& draft, std::int64_t tp);
void set_megatron_latent_attention(Draft& draft);
void set_megatron_multi_token_prediction(Draft& draft);

}  // namespace lockstep::importers
