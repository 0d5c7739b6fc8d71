// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::transformer {

/// How keys and values meet the queries where a sequence is cut over cp: Megatron's cp_comm_type.
enum class ContextExchange { all_gather, ring, all_to_all };

/// A decoder-only transformer as models/gpt.jsonc describes it; the names are those of its sizes.
struct Config {
  int layers = 1;
  int hidden = 8;
  int heads = 2;
  int kv_heads = 2;  ///< key-value heads; heads / kv_heads queries share one
  int head_size = 4;
  int ffn = 32;    ///< inner size of the dense MLP
  int vocab = 16;  ///< with its padding
  int positions = 16;
  bool learned_positions = true;  ///< else rotary
  bool layer_norm = true;         ///< else RMSNorm
  bool linear_bias = true;
  bool qkv_bias = false;  ///< on linear_qkv alone
  bool qk_norm = false;
  bool swiglu = false;  ///< else GELU
  bool tied = true;     ///< the head uses the word embedding's weight

  int experts = 0;
  int moe_ffn = 0;
  int top_k = 2;             ///< experts that a token visits
  bool pre_softmax = false;  ///< weights from the softmax over all experts, else over those that it visits
  /// An expert takes up to ceil(this * tokens * top_k / experts) of the tokens that are routed together; 0: all.
  double capacity_factor = 0;
  bool drop_by_position = false;  ///< the tokens behind are dropped, else those of the smallest weights
  int moe_layer_frequency = 1;
  int first_dense_layers = 0;
  int shared_expert_ffn = 0;
  bool shared_expert_gate = false;
  double auxiliary_loss = 0;  ///< coefficient of the load-balancing loss of each layer with experts

  ContextExchange context_exchange = ContextExchange::all_gather;

  int mtp_layers = 0;  ///< depths of multi-token prediction

  /// The losses that it has, by the names of a batch's uses: "main", "mtp", "aux".
  std::vector<std::string> uses() const;
  bool has_experts(int layer) const {
    return experts > 0 && layer >= first_dense_layers && layer % moe_layer_frequency == 0;
  }
  bool has_qkv_bias() const { return linear_bias || qkv_bias; }
  /// Rows of linear_qkv: for each key-value head its queries, its key, its value.
  int qkv_rows() const { return (heads + 2 * kv_heads) * head_size; }
  int gate_and_up() const { return swiglu ? 2 : 1; }
  friend bool operator==(const Config&, const Config&) = default;
};

struct TensorShape {
  std::string name;
  std::int64_t rows = 1;  ///< 1 for tensors of one dimension
  std::int64_t columns = 1;
};

/// The parameters of one device, in the names of models/gpt.jsonc for ep = 1, where expert e is weight{e}. A tied head
/// has no entry of its own.
///
/// The rows of a gated linear_fc1 alternate, gate and up, so that every tp size cuts between pairs.
std::vector<TensorShape> tensor_shapes(const Config& config);

/// "decoder.layers.3." or "mtp.layers.0.mtp_model_layer.".
std::string layer_prefix(int layer, bool mtp);

}  // namespace lockstep::transformer
