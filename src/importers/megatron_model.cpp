// SPDX-License-Identifier: Apache-2.0
#include "src/importers/megatron_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/importers/megatron_layers.h"
#include "src/importers/megatron_pipeline.h"

namespace lockstep::importers {

namespace {

/// Megatron-LM takes hidden_size / num_attention_heads as the size of a head, and refuses one that is not whole.
void check_head_size(ScenarioBuilder& builder) {
  const auto hidden = builder.integer("hidden_size"), heads = builder.integer("num_attention_heads");
  const bool own = is_replaced(builder, "hidden") || is_replaced(builder, "heads") || is_replaced(builder, "head_dim");
  if (hidden && heads && *heads > 0 && !builder.given("kv_channels") && !own && *hidden % *heads != 0) {
    builder.mistake("hidden_size", fmt::format("hidden_size {} must be divisible by num_attention_heads {} where "
                                               "kv_channels is not given",
                                               *hidden, *heads));
  }
}

/// Attention heads are dealt out to the tensor-parallel ranks.
void check_heads(ScenarioBuilder& builder, std::int64_t tp) {
  const auto heads = builder.integer("num_attention_heads");
  if (heads && !is_replaced(builder, "heads") && *heads % tp != 0) {
    builder.mistake("num_attention_heads",
                    fmt::format("num_attention_heads ({}) must be a multiple of tensor_model_parallel_size ({}) "
                                "(Megatron's words)",
                                *heads, tp));
  }
  const bool grouped = builder.boolean("group_query_attention", false) && !is_replaced(builder, "query_groups");
  const std::int64_t groups = grouped ? builder.integer("num_query_groups", 1) : 0;
  if (grouped && (groups < 1 || (groups % tp != 0 && tp % groups != 0))) {
    builder.mistake("num_query_groups", fmt::format("num_query_groups ({}) must be a multiple or divisor of "
                                                    "tensor_model_parallel_size ({}) (Megatron's words)",
                                                    groups, tp));
  }
}

}  // namespace

void set_megatron_model(ScenarioBuilder& builder, std::int64_t tp) {
  builder.preset("gpt");
  check_head_size(builder);
  check_heads(builder, tp);
  const bool gqa = builder.boolean("group_query_attention", false);
  const auto groups = builder.integer("num_query_groups");
  if (gqa) builder.size("query_groups", json_integer(groups.value_or(1)));
  if (const auto heads = builder.integer("num_key_value_heads")) builder.size("query_groups", json_integer(*heads));
  if (groups && !gqa && *groups != 1) {
    builder.meaning("num_query_groups", "nothing: it needs --group-query-attention");
  }
  if (const auto channels = builder.integer("kv_channels")) {
    const auto hidden = builder.model_size("hidden", "hidden_size");
    const auto heads = builder.model_size("heads", "num_attention_heads");
    if (!hidden || !heads || *channels * *heads != *hidden) builder.size("head_dim", json_integer(*channels));
  }
  const bool has_encoder = builder.given("encoder_num_layers");  // later it reads as if it had not been given
  if (has_encoder && !builder.given("num_layers")) {
    const auto layers = builder.integer("encoder_num_layers");
    builder.beyond_presets("encoder_num_layers", "lockstep has no model with encoder and decoder");
    if (!builder.has_stand_in()) return;
    if (layers) builder.size("layers", json_integer(*layers));
    builder.meaning("encoder_num_layers", "model.layers");
  }
  for (const std::string_view key : {"num_layers", "hidden_size", "num_attention_heads"}) {
    if (builder.given(key) || is_replaced(builder, builder.table().row(key)->target)) continue;
    if (key == "num_layers" && has_encoder) continue;  // the encoder's
    if (builder.has_stand_in()) {
      builder.size_of_stand_in(key);
    } else {
      builder.mistake("", fmt::format("{} is not given, and Megatron has no default for it; give --size {}=N", key,
                                      builder.table().row(key)->target));
    }
  }
  if (builder.boolean("swiglu", false) && !builder.given("ffn_hidden_size")) {
    // Two thirds of 4 * hidden, in multiples of 64, so that a gated MLP is as large as one that is not.
    if (const auto hidden = builder.model_size("hidden", "hidden_size"))
      builder.size("ffn", json_integer(*hidden * 8 / 3 / 64 * 64));
  }
  std::string positions = builder.word("position_embedding_type", "learned_absolute");
  if (builder.boolean("use_rotary_position_embeddings", false)) positions = "rope";
  if (!builder.boolean("add_position_embedding", true)) positions = "none";
  // "absolute", "rotary" and "alibi" are words of older forks (megatron_patch/model/*/language_model.py).
  if (positions == "learned_absolute" || positions == "absolute") {
    builder.size("position_embedding", Json::string("learned"));
    if (const auto length = builder.integer("max_position_embeddings")) {
      builder.size("positions", json_integer(*length));
    } else if (!is_replaced(builder, "positions")) {
      builder.assume("1024 learned positions: max_position_embeddings is not given; give --size positions=N.");
    }
  } else if (positions == "relative") {
    builder.beyond_presets("position_embedding_type", "lockstep's presets have no relative position embedding");
  } else {
    // All others have no parameters.
    builder.size("position_embedding", Json::string("rope"));
  }
  set_megatron_vocabulary(builder);
  set_megatron_experts(builder, tp);
  set_megatron_latent_attention(builder);
  set_megatron_multi_token_prediction(builder);
  set_megatron_pipeline(builder);
}

}  // namespace lockstep::importers
