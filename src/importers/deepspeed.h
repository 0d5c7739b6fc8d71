// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "src/importers/draft.h"

namespace lockstep {

/// A DeepSpeed configuration; "auto" is as if it was not given.
Settings read_deepspeed(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics);

/// batch.micro_batches from train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps, two of
/// which give the third.
void set_deepspeed_batch(Draft& draft, std::int64_t dp);

/// layout.dp, or with MiCS its two parts.
void set_deepspeed_partitions(Draft& draft, std::int64_t dp);

}  // namespace lockstep
