// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/importer.h"
#include "src/importers/draft.h"

namespace lockstep {

/// layout.virtual_stages, and which pipeline stage holds which layer: evenly, with other counts on the first or last
/// stage, with room for embedding or loss, or by hand. What Megatron refuses is a mistake in its words.
void set_megatron_pipeline(Draft& draft);

/// Option ddp_bucket_size from ddp_num_buckets: the parameters of a rank of the first stage, divided by that number
/// (megatron/training/training.py, resolve_ddp_bucket_size).
void set_megatron_buckets(Draft& draft, Imported& imported);

/// Whether --size gives a size of the model, in place of the configuration.
bool is_replaced(const Draft& draft, const std::string& size);

}  // namespace lockstep
