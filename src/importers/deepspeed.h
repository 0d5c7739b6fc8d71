// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "src/importers/scenario_builder.h"

namespace lockstep::importers {

/// A DeepSpeed configuration; "auto" is as if it was not given.
Settings read_deepspeed(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics);

/// batch.micro_batches from train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps, two of
/// which give the third. The number of micro-batches; 0 and a mistake where they are wrong.
/// `steps_otherwise`: gradient_accumulation_steps where the configuration does not mention it; 0: it follows.
std::int64_t set_deepspeed_batch(ScenarioBuilder& builder, std::int64_t dp, std::int64_t steps_otherwise = 0);

/// A mistake where neither the batch nor the micro-batch is there: DeepSpeed refuses that.
void check_deepspeed_batch_is_given(ScenarioBuilder& builder);

/// What is assumed of the loss with Ulysses, of which no configuration says how it is formed.
void assume_ulysses_loss(ScenarioBuilder& builder);

/// Mistakes at the keys that DeepSpeed has removed, and at those of its sections that it does not know: it
/// refuses both, with any value.
void refuse_keys_of_deepspeed(ScenarioBuilder& builder);

}  // namespace lockstep::importers
