// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/other_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/diagnostic.h"

namespace lockstep::scenario {

namespace {

/// As Megatron, DeepSpeed, torchtitan and PyTorch call them, and as we do.
constexpr std::array<std::pair<std::string_view, std::string_view>, 62> words = {{
    {"data", "dp"},
    {"data_parallel", "dp"},
    {"data_parallel_size", "dp"},
    {"tensor", "tp"},
    {"tensor_parallel", "tp"},
    {"tensor_parallel_size", "tp"},
    {"tensor_model_parallel_size", "tp"},
    {"model_parallel_size", "tp"},
    {"mp", "tp"},
    {"pipeline", "pp"},
    {"pipeline_parallel", "pp"},
    {"pipeline_parallel_size", "pp"},
    {"pipeline_model_parallel_size", "pp"},
    {"context", "cp"},
    {"context_parallel", "cp"},
    {"context_parallel_size", "cp"},
    {"sequence", "sp"},
    {"ulysses", "sp"},
    {"ulysses_degree", "sp"},
    {"expert", "ep"},
    {"expert_parallel", "ep"},
    {"expert_model_parallel_size", "ep"},
    {"expert_tensor_parallel_size", "etp"},
    {"virtual_pipeline_model_parallel_size", "virtual_stages"},
    {"world_size", "world"},
    {"gradient_accumulation_steps", "micro_batches"},
    {"num_microbatches", "micro_batches"},
    {"microbatches", "micro_batches"},
    {"mean", "avg"},
    {"average", "avg"},
    {"AVG", "avg"},
    {"SUM", "sum"},
    {"add", "sum"},
    {"fp32", "float32"},
    {"float", "float32"},
    {"fp64", "float64"},
    {"double", "float64"},
    {"bf16", "bfloat16"},
    {"fp16", "float16"},
    {"half", "float16"},
    {"remove", "drop"},
    {"delete", "drop"},
    {"copy", "duplicate"},
    {"add_step", "insert"},
    {"change", "set"},
    {"replace", "set"},
    {"hidden_size", "hidden"},
    {"num_layers", "layers"},
    {"num_hidden_layers", "layers"},
    {"n_layer", "layers"},
    {"vocab_size", "vocab"},
    {"num_attention_heads", "heads"},
    {"num_heads", "heads"},
    {"num_query_groups", "query_groups"},
    {"num_key_value_heads", "query_groups"},
    {"ffn_hidden_size", "ffn"},
    {"intermediate_size", "ffn"},
    {"num_experts", "experts"},
    {"max_position_embeddings", "positions"},
    {"params", "parameters"},
    {"zero_grad", "zero"},
    {"microbatch", "micro_batch"},
}};

}  // namespace

std::string_view meant_by(std::string_view word, const std::vector<std::string>& known) {
  for (const auto& [theirs, ours] : words) {
    if (theirs == word && std::find(known.begin(), known.end(), ours) != known.end()) return ours;
  }
  return "";
}

std::string did_you_mean_here(std::string_view word, const std::vector<std::string>& known) {
  const std::string_view meant = meant_by(word, known);
  return meant.empty() ? did_you_mean(word, known) : fmt::format("; did you mean \"{}\"?", meant);
}

}  // namespace lockstep::scenario
