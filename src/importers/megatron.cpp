// SPDX-License-Identifier: Apache-2.0
// Megatron-LM: what its arguments make of layout, batch and model, after its own defaulting
// (megatron/training/arguments.py, validate_args).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "src/base/counted.h"
#include "src/importers/formats.h"
#include "src/importers/megatron_deepspeed.h"
#include "src/importers/megatron_flags.h"
#include "src/importers/megatron_model.h"
#include "src/importers/megatron_pipeline.h"
#include "src/importers/megatron_sources.h"
#include "src/importers/scenario_builder.h"

namespace lockstep::importers {

namespace {

struct Sizes {
  std::int64_t tp = 1, pp = 1, cp = 1, dp = 1;
};

Sizes read_sizes(ScenarioBuilder& builder, std::int64_t launched) {
  Sizes sizes;
  sizes.tp = builder.degree("tensor_model_parallel_size");
  sizes.pp = builder.degree("pipeline_model_parallel_size");
  sizes.cp = builder.degree("context_parallel_size");
  std::int64_t world = builder.world_size("world_size", launched);
  const ScenarioBuilder::Degrees degrees = {{"tensor", sizes.tp}, {"pipeline", sizes.pp}, {"context", sizes.cp}};
  if (world == 0 && builder.given("data_parallel_size"))
    world = builder.product(degrees) * builder.degree("data_parallel_size");
  sizes.dp = builder.data_parallel_size(world, degrees);
  if (sizes.dp > 0) {
    builder.assume(fmt::format("{}: data-parallel size {} = {} / ({}).", counted(world, "rank"), sizes.dp, world,
                               text_of(degrees)));
  }
  return sizes;
}

void set_layout(ScenarioBuilder& builder, const Sizes& sizes) {
  builder.axis("tp", sizes.tp);
  builder.axis("cp", sizes.cp);
  const std::int64_t instances = builder.integer("num_distributed_optimizer_instances", 1);
  if (instances <= 1) {
    builder.axis("dp", sizes.dp);
  } else if (sizes.dp % instances != 0) {
    builder.mistake("num_distributed_optimizer_instances",
                    fmt::format("data-parallel size {} does not divide by {}", sizes.dp, instances));
  } else {
    builder.axis("dp_shard", sizes.dp / instances);
    builder.axis("dp_replicate", instances);
  }
  builder.axis("pp", sizes.pp);
  builder.axis("ep", builder.degree("expert_model_parallel_size"));
  const std::int64_t etp =
      builder.given("expert_tensor_parallel_size") ? builder.degree("expert_tensor_parallel_size") : sizes.tp;
  if (etp != sizes.tp) builder.layout("etp", json_integer(etp));
  for (const auto& [key, size] : {std::pair("tensor_parallel_num_weight_shards", sizes.tp),
                                  std::pair("expert_tensor_parallel_num_weight_shards", etp)}) {
    if (builder.integer(key, size) != size)
      builder.mistake(key, "lockstep does not describe generalized tensor parallelism");
  }
  if (builder.boolean("sequence_parallel", false)) {
    if (sizes.tp > 1) {
      builder.layout("sequence_parallel", Json::boolean(true));
    } else {
      builder.meaning("sequence_parallel", "nothing: Megatron turns it off without tensor parallelism");
    }
  }
  if (builder.boolean("use_tp_pp_dp_mapping", false)) builder.layout("order", Json::string("tp-cp-sp-ep-pp-dp"));
}

void set_batch(ScenarioBuilder& builder, const Sizes& sizes) {
  if (builder.request().micro_batches > 0 && builder.given("step_batch_size_schedule"))
    builder.disregard("step_batch_size_schedule", "nothing: --micro-batches says how many there are");
  const std::int64_t micro = builder.integer("micro_batch_size", 1);
  const std::optional<std::int64_t> global = builder.integer("global_batch_size");
  if (builder.given("rampup_batch_size"))
    builder.assume(
        "The number of micro-batches is that behind the ramp of rampup_batch_size; on the way there it is smaller.");
  if (builder.request().micro_batches > 0) return;
  if (micro < 1 || (global && *global < 1)) {
    builder.mistake(micro < 1 ? "micro_batch_size" : "global_batch_size", "expected a number of at least 1");
    return;
  }
  if (!global) {
    builder.assume(
        "One micro-batch: without global_batch_size Megatron takes micro_batch_size times the data-parallel size.");
    return;
  }
  const std::int64_t per_step = micro * sizes.dp;
  if (per_step == 0) return;  // said already
  if (*global % per_step != 0) {
    builder.mistake(
        "global_batch_size",
        fmt::format("{} does not divide by micro_batch_size {} times data-parallel size {}", *global, micro, sizes.dp));
    return;
  }
  builder.micro_batches(*global / per_step);
}

void note_precision(ScenarioBuilder& builder) {
  const bool bf16 = builder.boolean("bf16", false);
  if (!bf16) builder.meaning("bf16", "nothing: it is off");
  if (builder.boolean("grad_reduce_in_bf16", false)) {
    builder.meaning("bf16", "the rounding of bfloat16 is not modelled");
  } else {
    builder.meaning("grad_reduce_in_bf16", "nothing: it is off");
  }
  if (!builder.boolean("fp16", false)) builder.meaning("fp16", "nothing: it is off");
}

/// load_args_from_checkpoint() replaces what was given: sizes of the layout with the second of them alone.
void refuse_arguments_of_checkpoint(ScenarioBuilder& builder) {
  constexpr const char *model = "use_checkpoint_args", *layout = "use_mp_args_from_checkpoint_args";
  const bool both = builder.boolean(layout, false);
  if (both) builder.mistake(layout, builder.table().row(layout)->because);
  if (!builder.boolean(model, false)) return;
  if (both) {
    builder.mistake(model, builder.table().row(model)->because);
  } else {
    builder.beyond_presets(model, builder.table().row(model)->because);
  }
}

/// Optimizers that work layer by layer; what others do is not known.
void refuse_whole_parameters(ScenarioBuilder& builder) {
  const Json* optimizer = builder.value("optimizer");
  std::string name = optimizer != nullptr && optimizer->is_string() ? optimizer->text() : "";
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name.find("muon") != std::string::npos)
    builder.mistake("optimizer", builder.table().row("use_layer_wise_distributed_optimizer")->because);
}

void check_log(ScenarioBuilder& builder, const Sizes& sizes) {
  const std::int64_t printed = builder.integer("data_parallel_size", sizes.dp);
  if (sizes.dp == 0 || printed == sizes.dp || builder.request().world > 0) return;
  builder.mistake(
      "data_parallel_size",
      fmt::format("it is {}, but the other sizes in this block leave {}; the block is not what Megatron-LM printed",
                  printed, sizes.dp));
}

/// Releases whose mistakes were measured and are not those of the one that is judged (docs/frameworks/megatron.md).
void note_releases(ScenarioBuilder& builder, std::int64_t cp) {
  if (cp == 1) return;
  builder.assume("megatron-core 0.8.0 is not judged: with context parallelism it made gradients cp times too large.");
  if (builder.boolean("calculate_per_token_loss", false)) {
    builder.assume(
        "megatron-core 0.7 to 0.12 are not judged: with context parallelism they counted the tokens of the per-token "
        "loss without cp.");
  }
}

}  // namespace

Imported import_megatron(const ImportRequest& request, Diagnostics& diagnostics) {
  MegatronSource source = read_megatron_source(request, diagnostics);
  if (!diagnostics.empty()) return {};
  if (hands_over_to_deepspeed(source.settings))
    return import_megatron_deepspeed(request, std::move(source), diagnostics);
  ScenarioBuilder builder(request, "megatron", std::move(source.settings), diagnostics);
  std::vector<std::string> flags;
  for (const auto& flag : megatron_flags()) flags.push_back(flag.first);
  if (source.has_flags) builder.spellings(std::move(flags));
  for (std::string& note : source.notes) builder.assume(std::move(note));
  if (!source.other_model.empty()) builder.stands_in_for(source.other_model);
  const Sizes sizes = read_sizes(builder, source.world);
  if (!source.is_log) refuse_arguments_of_checkpoint(builder);
  refuse_without_deepspeed(builder);
  if (source.is_log) check_log(builder, sizes);
  refuse_whole_parameters(builder);
  set_layout(builder, sizes);
  set_batch(builder, sizes);
  set_megatron_model(builder, sizes.tp);
  note_precision(builder);
  note_releases(builder, sizes.cp);
  // examples/multimodal/model.py sets it, of Megatron-LM as of ROCm's and swiss-ai's fork, whatever the arguments say.
  if (builder.given("language_model_type")) {
    builder.option("calculate_per_token_loss", Json::boolean(true));
    builder.assume("calculate_per_token_loss is on: the multimodal example turns it on by itself.");
  }
  Imported imported = builder.finish("Imported from " + source.title, "imported-megatron");
  if (diagnostics.empty()) set_megatron_buckets(builder, imported);
  return imported;
}

}  // namespace lockstep::importers
