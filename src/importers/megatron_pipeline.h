// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/importer.h"
#include "src/importers/scenario_builder.h"

namespace lockstep::importers {

/// What one virtual pipeline stage holds, by pipeline_model_parallel_layout.
struct MegatronStage {
  int embeddings = 0, layers = 0, mtp = 0, losses = 0;
};

/// A text such as "Et*3|(tt|)*29,m|L": E the embedding, t a layer, m one of multi-token prediction, L the loss; a bar
/// between stages; *n repeats, commas mean nothing (core/transformer/pipeline_parallel_layer_layout.py). The stages in
/// the order of the layers; nothing where it is something else.
std::optional<std::vector<MegatronStage>> read_megatron_layout(const std::string& text);

/// layout.virtual_stages, and which pipeline stage holds which layer: evenly, with other counts on the first or last
/// stage, with room for embedding or loss, or by hand. What Megatron refuses is a mistake in its words.
void set_megatron_pipeline(ScenarioBuilder& builder);

/// Option ddp_bucket_size from ddp_num_buckets: the parameters of a rank of the first stage, divided by that number
/// (megatron/training/training.py, resolve_ddp_bucket_size).
void set_megatron_buckets(ScenarioBuilder& builder, Imported& imported);

/// Whether --size gives a size of the model, in place of the configuration.
bool is_replaced(const ScenarioBuilder& builder, const std::string& size);

}  // namespace lockstep::importers
