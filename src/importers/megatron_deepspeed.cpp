// SPDX-License-Identifier: Apache-2.0
// Megatron-DeepSpeed (4efb479d): what --deepspeed makes of Megatron's arguments. Where a choice comes from stands
// beside it; how DeepSpeed reduces is frameworks/deepspeed.jsonc.
#include "src/importers/megatron_deepspeed.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/counted.h"
#include "src/importers/deepspeed.h"
#include "src/importers/megatron_flags.h"
#include "src/importers/megatron_model.h"

namespace lockstep::importers {

namespace {

constexpr const char* release = "Megatron-DeepSpeed 4efb479d (16 July 2025)";

/// One expert is none: model/utils.py and pretrain_gpt.py ask for more than one. With more, each layer's number stands
/// in a list, and every second layer has them, which the presets do not know.
void set_experts(ScenarioBuilder& builder) {
  const Json* experts = builder.value("num_experts");
  if (experts != nullptr && (experts->is_string() || experts->is_number()) && experts->text() == "1") {
    builder.disregard("num_experts", "nothing: one expert is a dense layer");
  } else if (builder.given("num_experts")) {
    builder.beyond_presets("num_experts",
                           "lockstep's presets have no experts as Megatron-DeepSpeed builds them, with biases and in "
                           "every second layer");
  }
  if (builder.given("moe_expert_parallel_size") && !builder.given("num_experts"))
    builder.meaning("moe_expert_parallel_size", "nothing: there are no experts");
}

/// model/utils.py and core/parallel_state.py: Ulysses leaves no tensor and no pipeline parallelism.
void check_sequence_parallelism(ScenarioBuilder& builder, std::int64_t tp, std::int64_t pp, std::int64_t sp,
                                bool pipeline_engine) {
  if (sp > 1 && (tp > 1 || pp > 1)) {
    builder.mistake("ds_sequence_parallel_size",
                    "DeepSpeed's sequence parallel does not work with tensor parallel or pipeline parallel "
                    "(Megatron-DeepSpeed's words)");
  } else if (sp > 1 && pipeline_engine) {
    builder.mistake("ds_sequence_parallel_size",
                    "lockstep describes Ulysses with --no-pipeline-parallel alone: the pipeline engine is handed no "
                    "groups of it");
  }
  if (!builder.boolean("sequence_parallel", false)) return;
  if (tp == 1) {
    builder.meaning("sequence_parallel", "nothing: there is no tensor parallelism");
    return;
  }
  // optimizer/optimizer.py allreduce_layernorm_grads() is called by reduce_model_grads(), which training.py leaves out
  // with --deepspeed.
  builder.mistake("sequence_parallel",
                  "with --deepspeed Megatron's own sum of the norms' gradients over the tensor-parallel ranks does not "
                  "run (training.py), and whether anything else sums them was not measured; lockstep does not judge "
                  "it");
}

/// What Megatron runs (microbatches.py), against DeepSpeed's configuration. Before each step Megatron-DeepSpeed sets
/// DeepSpeed's batch to its own (training.py, set_train_batch_size); what that leaves as it was, such as ZeRO's number
/// of micro-batches, was not measured.
void set_batch_of_both(ScenarioBuilder& builder, std::int64_t dp, const Diagnostics& diagnostics) {
  constexpr const char* changed =
      "Megatron-DeepSpeed changes DeepSpeed's before each step (training.py), which lockstep does not describe";
  const std::size_t before = diagnostics.size();
  const std::int64_t micro = builder.integer("micro_batch_size", 1);
  const std::optional<std::int64_t> global = builder.integer("global_batch_size");
  const std::int64_t of_deepspeed = builder.integer("train_batch_size", 0);
  const std::int64_t micro_of_deepspeed = builder.integer("train_micro_batch_size_per_gpu", 0);
  if (micro < 1) builder.mistake("micro_batch_size", "expected a number of at least 1");
  if (global && *global < 1) builder.mistake("global_batch_size", "expected a number of at least 1");
  if (dp > 0 && of_deepspeed > 0 && global && *global != of_deepspeed) {
    builder.mistake("global_batch_size", fmt::format("it is {}, but DeepSpeed's train_batch_size is {}: {}", *global,
                                                     of_deepspeed, changed));
  }
  if (dp > 0 && micro_of_deepspeed > 0 && micro_of_deepspeed != micro) {
    builder.mistake("micro_batch_size", fmt::format("it is {}, but DeepSpeed's train_micro_batch_size_per_gpu is {}",
                                                    micro, micro_of_deepspeed));
  }
  const std::int64_t counted_by_deepspeed = set_deepspeed_batch(builder, dp);
  if (diagnostics.size() != before || dp == 0) return;
  const std::int64_t batch = global.value_or(micro * dp);
  if (batch % (micro * dp) != 0) {
    builder.mistake("global_batch_size", fmt::format("{} does not divide by micro_batch_size {} times data-parallel "
                                                     "size {}",
                                                     batch, micro, dp));
  } else if (batch / (micro * dp) != counted_by_deepspeed) {
    const auto given = [&](const char* key) { return builder.given(key); };
    const char* key = given("global_batch_size")             ? "global_batch_size"
                      : given("gradient_accumulation_steps") ? "gradient_accumulation_steps"
                                                             : "train_batch_size";
    builder.mistake(key, fmt::format("Megatron runs {} ({} / ({} × {})), but DeepSpeed's configuration "
                                     "says {}: {}",
                                     counted(batch / (micro * dp), "micro-batch"), batch, micro,
                                     counted(dp, "data-parallel rank"), counted_by_deepspeed, changed));
  }
}

/// args.zero_stage decides whether parameters are made in partitions (pretrain_gpt.py, deepspeed.zero.Init).
void check_stage(ScenarioBuilder& builder) {
  if (!builder.given("zero_stage")) return;
  const std::int64_t asked = builder.integer("zero_stage", 0), stage = builder.integer("zero_optimization.stage", 0);
  constexpr std::int64_t partitions_parameters = 3;
  if (asked != stage && (asked == partitions_parameters || stage == partitions_parameters)) {
    builder.mistake("zero_stage", fmt::format("it is {}, but DeepSpeed's configuration says stage {}", asked, stage));
  }
}

}  // namespace

bool hands_over_to_deepspeed(const Settings& settings) {
  const Setting* given = settings.find("deepspeed");
  return given != nullptr && boolean_of(given->value).value_or(false);
}

void refuse_without_deepspeed(ScenarioBuilder& builder) {
  if (builder.integer("ds_sequence_parallel_size", 1) != 1)
    builder.mistake("ds_sequence_parallel_size", "Ulysses works with --deepspeed alone, which is not given");
  if (builder.integer("moe_expert_parallel_size", 1) != 1)
    builder.mistake("moe_expert_parallel_size",
                    "Megatron-LM does not read it: it needs --deepspeed, or is --expert-model-parallel-size");
  // The experts of both stand in other layers, and one expert is none to Megatron-DeepSpeed alone.
  const auto& all = builder.settings().all();
  const auto of_fork = std::find_if(all.begin(), all.end(), [](const Setting& setting) {
    // What is logged: Pai-Megatron-Patch reads such an argument as well (megatron_patch/training.py).
    return setting.origin.starts_with("Megatron-DeepSpeed") && setting.origin != "Megatron-DeepSpeed: logging" &&
           !setting.value.is_null();
  });
  if (builder.given("num_experts") && of_fork != all.end())
    builder.mistake("num_experts", fmt::format("Megatron-LM does not know {}, which stands beside it: the experts are "
                                               "those of Megatron-DeepSpeed, which needs --deepspeed for them",
                                               of_fork->written));
  builder.boolean("deepspeed", false);
  builder.boolean("no_pipeline_parallel", false);
  builder.integer("zero_stage");
  for (const char* key :
       {"deepspeed", "deepspeed_config", "zero_stage", "no_pipeline_parallel", "moe_expert_parallel_size"})
    builder.meaning(key, "nothing: --deepspeed is not given");
}

Imported import_megatron_deepspeed(const ImportRequest& request, MegatronSource source, Diagnostics& diagnostics) {
  const bool alone = request.files.empty();  // arguments
  if (alone || (request.files.size() < 2 && request.arguments.empty())) {
    const Setting* named = source.settings.find("deepspeed_config");
    diagnostics.add(
        named != nullptr ? named->place : source.settings.find("deepspeed")->place,
        fmt::format("DeepSpeed reduces the gradients, and its configuration is not there; give {}",
                    alone ? "its file as well: lockstep import megatron DEEPSPEED_CONFIGURATION -- ARGUMENTS"
                          : "it as a second file: lockstep import megatron SCRIPT DEEPSPEED_CONFIGURATION"));
    return {};
  }
  ScenarioBuilder builder(request, "megatron", std::move(source.settings), diagnostics);
  builder.other_framework("deepspeed", "nothing: DeepSpeed reduces the gradients");
  builder.also_knows("deepspeed");
  std::vector<std::string> flags;
  for (const auto& flag : megatron_flags()) flags.push_back(flag.first);
  builder.spellings(std::move(flags));
  for (std::string& note : source.notes) builder.assume(std::move(note));
  if (!source.other_model.empty()) builder.stands_in_for(source.other_model);
  const std::int64_t tp = builder.degree("tensor_model_parallel_size");
  const std::int64_t pp = builder.degree("pipeline_model_parallel_size");
  const std::int64_t sp = builder.degree("ds_sequence_parallel_size");
  const std::int64_t world = builder.world_size("world_size", source.world);
  const ScenarioBuilder::Degrees degrees = {{"tensor", tp}, {"pipeline", pp}, {"Ulysses", sp}};
  const std::int64_t dp = builder.data_parallel_size(world, degrees);
  if (dp > 0)
    builder.assume(
        fmt::format("{}: data-parallel size {} = {} / ({}).", counted(world, "rank"), dp, world, text_of(degrees)));
  builder.axis("tp", tp);
  builder.axis("sp", sp);
  builder.axis("dp", dp);
  builder.axis("pp", pp);
  // training.py: without --no-pipeline-parallel the model is a PipelineModule, of one stage as well (pretrain_gpt.py).
  const bool pipeline_engine = !builder.boolean("no_pipeline_parallel", false);
  if (pipeline_engine) builder.option("pipeline_engine", Json::boolean(true));
  if (!pipeline_engine && pp > 1) {
    builder.mistake("no_pipeline_parallel",
                    "pipeline_model_parallel_size must be 1 if pipeline parallel is disabled (Megatron-DeepSpeed's "
                    "words)");
  }
  check_sequence_parallelism(builder, tp, pp, sp, pipeline_engine);
  // core/sequence_parallel/cross_entropy.py: the losses of all ranks are gathered, and backward keeps the own slice.
  if (sp > 1) builder.option("ulysses_loss", Json::string("gathered_own_slice"));
  check_stage(builder);
  set_batch_of_both(builder, dp, diagnostics);
  check_deepspeed_batch_is_given(builder);
  refuse_keys_of_deepspeed(builder);
  set_experts(builder);
  set_megatron_model(builder, tp);
  builder.meaning("bf16", "nothing: DeepSpeed's configuration says the precision");
  builder.meaning("fp16", "nothing: DeepSpeed's configuration says the precision");
  builder.release_name(release);
  builder.runs_on("deepspeed");
  return builder.finish("Imported from " + source.title, "imported-megatron-deepspeed");
}

}  // namespace lockstep::importers
