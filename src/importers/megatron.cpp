// SPDX-License-Identifier: Apache-2.0
// Megatron-LM: what its arguments make of layout, batch and model, after its own defaulting
// (megatron/training/arguments.py, validate_args).
#include <fmt/format.h>

#include <algorithm>

#include "src/base/counted.h"
#include "src/importers/draft.h"
#include "src/importers/formats.h"
#include "src/importers/megatron_flags.h"
#include "src/importers/megatron_layers.h"
#include "src/importers/megatron_pipeline.h"
#include "src/importers/megatron_sources.h"

namespace lockstep::importers {

namespace {

struct Sizes {
  std::int64_t tp = 1, pp = 1, cp = 1, dp = 1;
};

Sizes read_sizes(Draft& draft, std::int64_t launched) {
  Sizes sizes;
  sizes.tp = draft.degree("tensor_model_parallel_size");
  sizes.pp = draft.degree("pipeline_model_parallel_size");
  sizes.cp = draft.degree("context_parallel_size");
  std::int64_t world = draft.world_size("world_size", launched);
  const Draft::Degrees degrees = {{"tensor", sizes.tp}, {"pipeline", sizes.pp}, {"context", sizes.cp}};
  if (world == 0 && draft.given("data_parallel_size"))
    world = draft.product(degrees) * draft.degree("data_parallel_size");
  sizes.dp = draft.data_parallel_size(world, degrees);
  if (sizes.dp > 0) {
    draft.assume(fmt::format("{}: data-parallel size {} = {} / ({}).", counted(world, "rank"), sizes.dp, world,
                             text_of(degrees)));
  }
  return sizes;
}

void set_layout(Draft& draft, const Sizes& sizes) {
  draft.axis("tp", sizes.tp);
  draft.axis("cp", sizes.cp);
  const std::int64_t instances = draft.integer("num_distributed_optimizer_instances", 1);
  if (instances <= 1) {
    draft.axis("dp", sizes.dp);
  } else if (sizes.dp % instances != 0) {
    draft.mistake("num_distributed_optimizer_instances",
                  fmt::format("data-parallel size {} does not divide by {}", sizes.dp, instances));
  } else {
    draft.axis("dp_shard", sizes.dp / instances);
    draft.axis("dp_replicate", instances);
  }
  draft.axis("pp", sizes.pp);
  draft.axis("ep", draft.degree("expert_model_parallel_size"));
  const std::int64_t etp =
      draft.given("expert_tensor_parallel_size") ? draft.degree("expert_tensor_parallel_size") : sizes.tp;
  if (etp != sizes.tp) draft.layout("etp", json_integer(etp));
  for (const auto& [key, size] : {std::pair("tensor_parallel_num_weight_shards", sizes.tp),
                                  std::pair("expert_tensor_parallel_num_weight_shards", etp)}) {
    if (draft.integer(key, size) != size)
      draft.mistake(key, "lockstep does not describe generalized tensor parallelism");
  }
  if (draft.boolean("sequence_parallel", false)) {
    if (sizes.tp > 1) {
      draft.layout("sequence_parallel", Json::boolean(true));
    } else {
      draft.meaning("sequence_parallel", "nothing: Megatron turns it off without tensor parallelism");
    }
  }
  if (draft.boolean("use_tp_pp_dp_mapping", false)) draft.layout("order", Json::string("tp-cp-sp-ep-pp-dp"));
}

void set_batch(Draft& draft, const Sizes& sizes) {
  const std::int64_t micro = draft.integer("micro_batch_size", 1);
  const std::optional<std::int64_t> global = draft.integer("global_batch_size");
  if (draft.request().micro_batches > 0) return;
  if (micro < 1 || (global && *global < 1)) {
    draft.mistake(micro < 1 ? "micro_batch_size" : "global_batch_size", "expected a number of at least 1");
    return;
  }
  if (!global) {
    draft.assume(
        "One micro-batch: without global_batch_size Megatron takes micro_batch_size times the data-parallel size.");
    return;
  }
  const std::int64_t per_step = micro * sizes.dp;
  if (per_step == 0) return;  // said already
  if (*global % per_step != 0) {
    draft.mistake(
        "global_batch_size",
        fmt::format("{} does not divide by micro_batch_size {} times data-parallel size {}", *global, micro, sizes.dp));
    return;
  }
  draft.micro_batches(*global / per_step);
}

/// Megatron-LM takes hidden_size / num_attention_heads as the size of a head, and refuses one that is not whole.
void check_head_size(Draft& draft) {
  const auto hidden = draft.integer("hidden_size"), heads = draft.integer("num_attention_heads");
  const bool own = is_replaced(draft, "hidden") || is_replaced(draft, "heads") || is_replaced(draft, "head_dim");
  if (hidden && heads && *heads > 0 && !draft.given("kv_channels") && !own && *hidden % *heads != 0) {
    draft.mistake("hidden_size", fmt::format("hidden_size {} must be divisible by num_attention_heads {} where "
                                             "kv_channels is not given",
                                             *hidden, *heads));
  }
}

/// Attention heads are dealt out to the tensor-parallel ranks.
void check_heads(Draft& draft, std::int64_t tp) {
  const auto heads = draft.integer("num_attention_heads");
  if (heads && !is_replaced(draft, "heads") && *heads % tp != 0) {
    draft.mistake("num_attention_heads",
                  fmt::format("num_attention_heads ({}) must be a multiple of tensor_model_parallel_size ({}) "
                              "(Megatron's words)",
                              *heads, tp));
  }
  const bool grouped = draft.boolean("group_query_attention", false) && !is_replaced(draft, "query_groups");
  const std::int64_t groups = grouped ? draft.integer("num_query_groups", 1) : 0;
  if (grouped && (groups < 1 || (groups % tp != 0 && tp % groups != 0))) {
    draft.mistake("num_query_groups", fmt::format("num_query_groups ({}) must be a multiple or divisor of "
                                                  "tensor_model_parallel_size ({}) (Megatron's words)",
                                                  groups, tp));
  }
}

/// The flags of Megatron-LM that say how a model is built but have another default there than in the preset.
void set_model(Draft& draft, std::int64_t tp) {
  draft.preset("gpt");
  check_head_size(draft);
  check_heads(draft, tp);
  const bool gqa = draft.boolean("group_query_attention", false);
  const auto groups = draft.integer("num_query_groups");
  if (gqa) draft.size("query_groups", json_integer(groups.value_or(1)));
  if (groups && !gqa && *groups != 1) {
    draft.meaning("num_query_groups", "nothing: it needs --group-query-attention");
  }
  if (const auto channels = draft.integer("kv_channels")) {
    const auto hidden = draft.integer("hidden_size"), heads = draft.integer("num_attention_heads");
    if (!hidden || !heads || *channels * *heads != *hidden) draft.size("head_dim", json_integer(*channels));
  }
  if (draft.given("encoder_num_layers") && !draft.given("num_layers")) {
    draft.mistake("encoder_num_layers", "lockstep has no model with encoder and decoder");
    return;
  }
  for (const std::string_view key : {"num_layers", "hidden_size", "num_attention_heads"}) {
    if (!draft.given(key) && !is_replaced(draft, draft.table().row(key)->target)) {
      draft.mistake("", fmt::format("{} is not given, and Megatron has no default for it; give --size {}=N", key,
                                    draft.table().row(key)->target));
    }
  }
  if (draft.boolean("swiglu", false) && !draft.given("ffn_hidden_size")) {
    // Two thirds of 4 * hidden, in multiples of 64, so that a gated MLP is as large as one that is not.
    if (const auto hidden = draft.integer("hidden_size")) draft.size("ffn", json_integer(*hidden * 8 / 3 / 64 * 64));
  }
  std::string positions = draft.word("position_embedding_type", "learned_absolute");
  if (draft.boolean("use_rotary_position_embeddings", false)) positions = "rope";
  if (!draft.boolean("add_position_embedding", true)) positions = "none";
  if (positions == "learned_absolute") {
    draft.size("position_embedding", Json::string("learned"));
    if (const auto length = draft.integer("max_position_embeddings")) {
      draft.size("positions", json_integer(*length));
    } else if (!is_replaced(draft, "positions")) {
      draft.assume("1024 learned positions: max_position_embeddings is not given; give --size positions=N.");
    }
  } else if (positions == "relative") {
    draft.mistake("position_embedding_type", "lockstep's presets have no relative position embedding");
  } else {
    // Rope, yarn and none have no parameters.
    draft.size("position_embedding", Json::string("rope"));
  }
  set_megatron_vocabulary(draft);
  set_megatron_experts(draft, tp);
  set_megatron_latent_attention(draft);
  set_megatron_multi_token_prediction(draft);
  set_megatron_pipeline(draft);
}

void note_precision(Draft& draft) {
  const bool bf16 = draft.boolean("bf16", false);
  if (!bf16) draft.meaning("bf16", "nothing: it is off");
  if (draft.boolean("grad_reduce_in_bf16", false)) {
    draft.meaning("bf16", "the rounding of bfloat16 is not modelled");
  } else {
    draft.meaning("grad_reduce_in_bf16", "nothing: it is off");
  }
  if (!draft.boolean("fp16", false)) draft.meaning("fp16", "nothing: it is off");
}

/// load_args_from_checkpoint() replaces what was given.
void refuse_arguments_of_checkpoint(Draft& draft) {
  for (const char* key : {"use_checkpoint_args", "use_mp_args_from_checkpoint_args"}) {
    if (draft.boolean(key, false)) draft.mistake(key, draft.table().row(key)->because);
  }
}

void check_log(Draft& draft, const Sizes& sizes) {
  const std::int64_t printed = draft.integer("data_parallel_size", sizes.dp);
  if (sizes.dp == 0 || printed == sizes.dp || draft.request().world > 0) return;
  draft.mistake(
      "data_parallel_size",
      fmt::format("it is {}, but the other sizes in this block leave {}; the block is not what Megatron-LM printed",
                  printed, sizes.dp));
}

/// Releases whose mistakes were measured and are not those of the one that is judged (docs/frameworks/megatron.md).
void note_releases(Draft& draft, std::int64_t cp) {
  if (cp == 1) return;
  draft.assume("megatron-core 0.8.0 is not judged: with context parallelism it made gradients cp times too large.");
  if (draft.boolean("calculate_per_token_loss", false)) {
    draft.assume(
        "megatron-core 0.7 to 0.12 are not judged: with context parallelism they counted the tokens of the per-token "
        "loss without cp.");
  }
}

}  // namespace

Imported import_megatron(const ImportRequest& request, Diagnostics& diagnostics) {
  MegatronSource source = read_megatron_source(request, diagnostics);
  if (!diagnostics.empty()) return {};
  Draft draft(request, "megatron", std::move(source.settings), diagnostics);
  std::vector<std::string> flags;
  for (const auto& flag : megatron_flags()) flags.push_back(flag.first);
  if (source.has_flags) draft.spellings(std::move(flags));
  for (std::string& note : source.notes) draft.assume(std::move(note));
  const Sizes sizes = read_sizes(draft, source.world);
  if (!source.is_log) refuse_arguments_of_checkpoint(draft);
  if (source.is_log) check_log(draft, sizes);
  set_layout(draft, sizes);
  set_batch(draft, sizes);
  set_model(draft, sizes.tp);
  note_precision(draft);
  note_releases(draft, sizes.cp);
  Imported imported = draft.finish("Imported from " + source.title, "imported-megatron");
  if (diagnostics.empty()) set_megatron_buckets(draft, imported);
  return imported;
}

}  // namespace lockstep::importers
