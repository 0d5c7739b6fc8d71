// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/config.h"

#include <fmt/format.h>

namespace lockstep::transformer {

namespace {

class Shapes {
 public:
  explicit Shapes(const Config& config) : config_(config) {}

  void norm(const std::string& name, int size) {
    add(name + ".weight", 1, size);
    if (config_.layer_norm) add(name + ".bias", 1, size);
  }

  void layer(const std::string& prefix, bool experts) {
    const int hidden = config_.hidden;
    norm(prefix + "input_layernorm", hidden);
    const std::string attention = prefix + "self_attention.";
    add(attention + "linear_proj.weight", hidden, config_.heads * config_.head_size);
    if (config_.linear_bias) add(attention + "linear_proj.bias", 1, hidden);
    add(attention + "linear_qkv.weight", config_.qkv_rows(), hidden);
    if (config_.has_qkv_bias()) add(attention + "linear_qkv.bias", 1, config_.qkv_rows());
    if (config_.qk_norm) {
      norm(attention + "q_layernorm", config_.head_size);
      norm(attention + "k_layernorm", config_.head_size);
    }
    norm(prefix + "pre_mlp_layernorm", hidden);
    if (experts) {
      mixture(prefix + "mlp.");
      return;
    }
    const int inner = config_.gate_and_up() * config_.ffn;
    add(prefix + "mlp.linear_fc1.weight", inner, hidden);
    if (config_.linear_bias) add(prefix + "mlp.linear_fc1.bias", 1, inner);
    add(prefix + "mlp.linear_fc2.weight", hidden, config_.ffn);
    if (config_.linear_bias) add(prefix + "mlp.linear_fc2.bias", 1, hidden);
  }

  void mixture(const std::string& mlp) {
    add(mlp + "router.weight", config_.experts, config_.hidden);
    for (int i = 0; i < config_.experts; ++i) {
      add(fmt::format("{}experts.linear_fc1.weight{}", mlp, i), config_.gate_and_up() * config_.moe_ffn,
          config_.hidden);
    }
    for (int i = 0; i < config_.experts; ++i)
      add(fmt::format("{}experts.linear_fc2.weight{}", mlp, i), config_.hidden, config_.moe_ffn);
    if (config_.shared_expert_ffn == 0) return;
    if (config_.shared_expert_gate) add(mlp + "shared_experts.gate_weight", 1, config_.hidden);
    add(mlp + "shared_experts.linear_fc1.weight", config_.gate_and_up() * config_.shared_expert_ffn, config_.hidden);
    add(mlp + "shared_experts.linear_fc2.weight", config_.hidden, config_.shared_expert_ffn);
  }

  void add(std::string name, std::int64_t rows, std::int64_t columns) {
    list.push_back({std::move(name), rows, columns});
  }

  std::vector<TensorShape> list;

 private:
  const Config& config_;
};

}  // namespace

std::vector<std::string> Config::uses() const {
  std::vector<std::string> names = {"main"};
  if (mtp_layers > 0) names.emplace_back("mtp");
  if (experts > 0 && auxiliary_loss > 0) names.emplace_back("aux");
  return names;
}

std::string layer_prefix(int layer, bool mtp) {
  return mtp ? fmt::format("mtp.layers.{}.mtp_model_layer.", layer) : fmt::format("decoder.layers.{}.", layer);
}

std::vector<TensorShape> tensor_shapes(const Config& config) {
  Shapes shapes(config);
  shapes.add("embedding.word_embeddings.weight", config.vocab, config.hidden);
  if (config.learned_positions) shapes.add("embedding.position_embeddings.weight", config.positions, config.hidden);
  for (int layer = 0; layer < config.layers; ++layer)
    shapes.layer(layer_prefix(layer, false), config.has_experts(layer));
  shapes.norm("decoder.final_layernorm", config.hidden);
  for (int depth = 0; depth < config.mtp_layers; ++depth) {
    const std::string prefix = fmt::format("mtp.layers.{}.", depth);
    shapes.norm(prefix + "enorm", config.hidden);
    shapes.norm(prefix + "hnorm", config.hidden);
    shapes.add(prefix + "eh_proj.weight", config.hidden, 2 * config.hidden);
    shapes.layer(layer_prefix(depth, true), config.has_experts(config.layers - 1));
    shapes.norm(prefix + "final_layernorm", config.hidden);
  }
  if (!config.tied) shapes.add("output_layer.weight", config.vocab, config.hidden);
  return shapes.list;
}

}  // namespace lockstep::transformer
