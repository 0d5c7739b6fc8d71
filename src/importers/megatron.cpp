// SPDX-License-Identifier: Apache-2.0
// Megatron-LM: what its arguments make of layout, batch and model, after its own defaulting
// (megatron/training/arguments.py, validate_args).
#include <fmt/format.h>

#include <algorithm>

#include "src/importers/draft.h"
#include "src/importers/formats.h"
#include "src/importers/megatron_flags.h"
#include "src/importers/megatron_layers.h"
#include "src/importers/megatron_sources.h"

namespace lockstep {

namespace {

struct Mesh {
  std::int64_t tp = 1, pp = 1, cp = 1, dp = 1;
};

Mesh read_mesh(Draft& draft, std::int64_t launched) {
  Mesh mesh;
  mesh.tp = draft.integer("tensor_model_parallel_size", 1);
  mesh.pp = draft.integer("pipeline_model_parallel_size", 1);
  mesh.cp = draft.integer("context_parallel_size", 1);
  std::int64_t world = draft.request().world;
  if (world == 0) world = draft.integer("world_size", launched);
  const std::optional<std::int64_t> dp = draft.integer("data_parallel_size");
  for (const auto& [key, size] :
       {std::pair("tensor_model_parallel_size", mesh.tp), std::pair("pipeline_model_parallel_size", mesh.pp),
        std::pair("context_parallel_size", mesh.cp), std::pair("data_parallel_size", dp.value_or(1))}) {
    if (size >= 1 && size <= 1'000'000) continue;
    draft.mistake(key, "expected a size between 1 and 1000000");
    return Mesh{};
  }
  const std::int64_t product = mesh.tp * mesh.pp * mesh.cp;
  if (world == 0 && dp) world = product * *dp;
  mesh.dp = draft.data_parallel_size(world, product,
                                     fmt::format("tensor {} × pipeline {} × context {}", mesh.tp, mesh.pp, mesh.cp));
  if (mesh.dp > 0) {
    draft.assume(fmt::format("{} ranks: data-parallel size {} = {} / (tensor {} × pipeline {} × context {}).", world,
                             mesh.dp, world, mesh.tp, mesh.pp, mesh.cp));
  }
  return mesh;
}

void set_layout(Draft& draft, const Mesh& mesh) {
  draft.axis("tp", mesh.tp);
  draft.axis("cp", mesh.cp);
  const std::int64_t instances = draft.integer("num_distributed_optimizer_instances", 1);
  if (instances <= 1) {
    draft.axis("dp", mesh.dp);
  } else if (mesh.dp % instances != 0) {
    draft.mistake("num_distributed_optimizer_instances",
                  fmt::format("data-parallel size {} does not divide by {}", mesh.dp, instances));
  } else {
    draft.axis("dp_shard", mesh.dp / instances);
    draft.axis("dp_replicate", instances);
  }
  draft.axis("pp", mesh.pp);
  draft.axis("ep", draft.integer("expert_model_parallel_size", 1));
  const std::int64_t etp = draft.integer("expert_tensor_parallel_size", mesh.tp);
  if (etp != mesh.tp) draft.layout("etp", json_integer(etp));
  if (draft.boolean("sequence_parallel", false)) {
    if (mesh.tp > 1) {
      draft.layout("sequence_parallel", Json::boolean(true));
    } else {
      draft.meaning("sequence_parallel", "nothing: Megatron turns it off without tensor parallelism");
    }
  }
  if (draft.boolean("use_tp_pp_dp_mapping", false)) draft.layout("order", Json::string("tp-cp-sp-ep-pp-dp"));
}

void set_batch(Draft& draft, const Mesh& mesh) {
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
  const std::int64_t per_step = micro * mesh.dp;
  if (per_step == 0) return;  // said already
  if (*global % per_step != 0) {
    draft.mistake(
        "global_batch_size",
        fmt::format("{} does not divide by micro_batch_size {} times data-parallel size {}", *global, micro, mesh.dp));
    return;
  }
  draft.micro_batches(*global / per_step);
}

/// Whether --size gives a size of the model, in place of the configuration.
bool replaced(const Draft& draft, const std::string& size) {
  const std::vector<std::string>& sizes = draft.request().sizes;
  return std::any_of(sizes.begin(), sizes.end(), [&](const std::string& one) { return one.starts_with(size + "="); });
}

/// Megatron-LM takes hidden_size / num_attention_heads as the size of a head, and refuses one that is not whole.
void check_head_size(Draft& draft) {
  const auto hidden = draft.integer("hidden_size"), heads = draft.integer("num_attention_heads");
  const bool own = replaced(draft, "hidden") || replaced(draft, "heads") || replaced(draft, "head_dim");
  if (hidden && heads && *heads > 0 && !draft.given("kv_channels") && !own && *hidden % *heads != 0) {
    draft.mistake("hidden_size", fmt::format("hidden_size {} must be divisible by num_attention_heads {} where "
                                             "kv_channels is not given",
                                             *hidden, *heads));
  }
}

/// The flags of Megatron-LM that say how a model is built but have another default there than in the preset.
void set_model(Draft& draft, std::int64_t tp) {
  draft.preset("gpt");
  check_head_size(draft);
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
  for (const std::string_view key : {"num_layers", "hidden_size", "num_attention_heads"}) {
    if (!draft.given(key) && !replaced(draft, draft.table().row(key)->target)) {
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
    } else if (!replaced(draft, "positions")) {
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
  set_megatron_virtual_stages(draft);
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

}  // namespace

Imported import_megatron(const ImportRequest& request, Diagnostics& diagnostics) {
  MegatronSource source = read_megatron_source(request, diagnostics);
  if (!diagnostics.empty() && source.settings.all().empty()) return {};
  Draft draft(request, "megatron", std::move(source.settings), diagnostics);
  std::vector<std::string> flags;
  for (const auto& flag : megatron_flags()) flags.push_back(flag.first);
  if (source.has_flags) draft.spellings(std::move(flags));
  const Mesh mesh = read_mesh(draft, source.world);
  set_layout(draft, mesh);
  set_batch(draft, mesh);
  set_model(draft, mesh.tp);
  note_precision(draft);
  return draft.finish("Imported from " + source.title, "imported-megatron");
}

}  // namespace lockstep
