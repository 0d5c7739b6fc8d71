// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// What one virtual pipeline stage holds, by pipeline_model_parallel_layout.
struct MegatronStage {
  int embeddings = 0, layers = 0, mtp = 0, losses = 0;
};

/// A text such as "Et*3|(tt|)*29,m|L": E the embedding, t a layer, m one of multi-token prediction, L the loss; a bar
/// between stages; *n repeats, commas mean nothing (core/transformer/pipeline_parallel_layer_layout.py). The stages in
/// the order of the layers; nothing where it is something else.
std::optional<std::vector<MegatronStage>> read_megatron_layout(const std::string& text);

}  // namespace lockstep
