// SPDX-License-Identifier: Apache-2.0
// Hugging Face accelerate: the file that `accelerate config` writes. With DeepSpeed the configuration that it names may
// follow as a second file.
#include <fmt/format.h>

#include "src/importers/deepspeed.h"
#include "src/importers/formats.h"
#include "src/importers/request.h"
#include "src/importers/syntax.h"

namespace lockstep::importers {

namespace {

std::string parallelism(const std::string& name) { return "parallelism_config.parallelism_config_" + name; }

Settings read_configuration(const ImportRequest& request, Diagnostics& diagnostics) {
  Settings settings;
  const Json root = read_yaml(request.files.front(), diagnostics);
  if (!is_configuration(root, request.files.front(), diagnostics)) return settings;
  Settings written;
  flatten(root, written);
  for (Setting setting : written.all()) {
    // accelerate's own default of both: the script says it.
    const bool may = setting.key == "deepspeed_config.gradient_accumulation_steps" ||
                     setting.key == "deepspeed_config.gradient_clipping";
    setting.is_auto = may && setting.value.is_string() && setting.value.text() == "auto";
    if (setting.is_auto) setting.value = Json().at(setting.value.place());
    settings.set(std::move(setting));
  }
  for (std::size_t i = 1; i < request.files.size(); ++i) {
    const Settings more = read_deepspeed(request.files[i], diagnostics);
    for (const Setting& setting : more.all()) {
      if (!setting.value.is_null() || settings.find(setting.key) == nullptr) settings.set(setting);
    }
  }
  return settings;
}

struct ParallelismSizes {
  std::int64_t tp = 1, cp = 1, sp = 1, dp = 1;
};

ParallelismSizes read_parallelism(ScenarioBuilder& builder) {
  const ImportRequest& request = builder.request();
  ParallelismSizes sizes;
  sizes.tp = builder.degree(parallelism("tp_size"), request.tp);
  sizes.cp = builder.degree(parallelism("cp_size"), request.cp);
  sizes.sp = builder.degree(parallelism("sp_size"), request.sp);
  // Without parallelism accelerate starts one process (ClusterConfig in commands/config/config_args.py).
  const bool is_alone =
      request.world <= 0 && builder.word("distributed_type", "NO") == "NO" && !builder.given("num_processes");
  sizes.dp = builder.data_parallel_size(builder.world_size("num_processes", is_alone ? 1 : 0),
                                        {{"tensor", sizes.tp}, {"context", sizes.cp}, {"sequence", sizes.sp}});
  return sizes;
}

/// What stands in DeepSpeed's own file may not stand beside its name (_deepspeed_config_checks in
/// utils/dataclasses.py).
void check_nothing_is_said_twice(ScenarioBuilder& builder) {
  for (const char* key : {"deepspeed_config.gradient_accumulation_steps", "deepspeed_config.gradient_clipping",
                          "deepspeed_config.zero_stage", "deepspeed_config.offload_optimizer_device",
                          "deepspeed_config.offload_param_device", "deepspeed_config.offload_param_nvme_path",
                          "deepspeed_config.offload_optimizer_nvme_path", "deepspeed_config.zero3_save_16bit_model"}) {
    if (builder.mentioned(key))
      builder.mistake(
          key, "accelerate refuses this key beside deepspeed_config_file (ValueError); it belongs into that file");
  }
  if (builder.given("mixed_precision")) {
    builder.mistake(
        "mixed_precision",
        "accelerate refuses this key beside deepspeed_config_file (ValueError): bf16 or fp16 belong into that "
        "file");
  }
}

/// The launcher starts several processes for MULTI_GPU, FSDP and DeepSpeed, and one for NO, whatever num_processes
/// says.
void check_processes(ScenarioBuilder& builder, const std::string& type) {
  const std::int64_t processes = builder.integer("num_processes", 1);
  if (type != "NO" || processes <= 1 || builder.request().world == 1) return;
  builder.mistake(
      "num_processes",
      fmt::format("accelerate starts one process with distributed_type NO, not {}; give MULTI_GPU for {}, or "
                  "--world-size 1",
                  processes, processes));
}

/// Which part of the data-parallel ranks shards, and which replicates.
void set_data_parallel(ScenarioBuilder& builder, std::int64_t dp, bool fsdp) {
  const std::int64_t replicate = builder.degree(parallelism("dp_replicate_size"));
  const std::int64_t shard = builder.degree(parallelism("dp_shard_size"));
  const std::string strategy = builder.word("fsdp_config.fsdp_sharding_strategy", "FULL_SHARD");
  const bool hybrid = fsdp && (strategy.starts_with("HYBRID_SHARD") || strategy == "4" || strategy == "5");
  if (dp == 0) return;  // said already
  if (hybrid) {
    const std::int64_t machines = builder.integer("num_machines", 1);
    if (machines < 1 || dp % machines != 0) {
      builder.mistake("num_machines", fmt::format("{} data-parallel ranks do not divide by it", dp));
      return;
    }
    builder.axis("dp_shard", dp / machines);
    builder.axis("dp_replicate", machines);
    builder.assume(fmt::format("HYBRID_SHARD shards over the {} ranks of a machine, as PyTorch does.", dp / machines));
    return;
  }
  if (replicate > 1 && shard == 1 && fsdp) {
    builder.mistake(parallelism("dp_replicate_size"), "accelerate refuses replicas without dp_shard_size");
  } else if (builder.given(parallelism("dp_shard_size")) && replicate * shard != dp) {
    builder.mistake(parallelism("dp_shard_size"),
                    fmt::format("replicate {} × shard {} are not the {} data-parallel ranks", replicate, shard, dp));
  } else if (replicate > 1 && shard > 1) {
    builder.axis("dp_shard", shard);
    builder.axis("dp_replicate", replicate);
  } else {
    builder.axis("dp", dp);
  }
}

}  // namespace

Imported import_accelerate(const ImportRequest& request, Diagnostics& diagnostics) {
  if (request.files.empty()) {
    has_one_file(request, "accelerate", diagnostics);
    return {};
  }
  Settings settings = read_configuration(request, diagnostics);
  if (!diagnostics.empty()) return {};
  ScenarioBuilder builder(request, "accelerate", std::move(settings), diagnostics);
  const std::string type = builder.word("distributed_type", "NO");
  const bool deepspeed = type == "DEEPSPEED";
  if (!deepspeed && request.files.size() > 1) {
    diagnostics.add({}, "a second file is a DeepSpeed configuration, but distributed_type is not DEEPSPEED");
    return {};
  }
  if (type == "MEGATRON_LM") {
    builder.mistake(
        "distributed_type",
        "with MEGATRON_LM the arguments of Megatron-LM count: import what it prints at start, with `lockstep "
        "import megatron`");
    return {};
  }
  check_processes(builder, type);
  const ParallelismSizes sizes = read_parallelism(builder);
  builder.axis("tp", sizes.tp);
  builder.axis("cp", sizes.cp);
  builder.axis("sp", sizes.sp);
  if (deepspeed) {
    builder.framework("deepspeed");
    builder.also_knows("deepspeed");
    builder.runs_on("deepspeed");
    const bool has_file = builder.value("deepspeed_config.deepspeed_config_file") != nullptr;
    builder.meaning("deepspeed_config.deepspeed_config_file", "the second file");
    if (has_file && request.files.size() == 1) {
      builder.mistake("deepspeed_config.deepspeed_config_file", "give that file behind this one");
    }
    for (const auto& [from, to] :
         {std::pair("zero_stage", "zero_stage"), std::pair("gradient_clipping", "gradient_clipping")}) {
      const std::string key = std::string("deepspeed_config.") + from;
      if (const auto number = builder.number(key)) builder.option(to, json_number(*number));
    }
    builder.axis("dp", sizes.dp);
    refuse_keys_of_deepspeed(builder);
    if (has_file) check_nothing_is_said_twice(builder);
    const auto steps = builder.integer("deepspeed_config.gradient_accumulation_steps");
    const bool is_auto = !steps && builder.mentioned("deepspeed_config.gradient_accumulation_steps");
    if (is_auto && !builder.given("gradient_accumulation_steps") && !builder.given("train_batch_size")) {
      if (request.micro_batches <= 0)
        builder.assume(
            "One micro-batch: gradient_accumulation_steps is auto, which the script may say; give --micro-batches N.");
    } else if (builder.given("gradient_accumulation_steps") || builder.given("train_batch_size") || !steps) {
      set_deepspeed_batch(builder, sizes.dp);
    } else {
      builder.micro_batches(*steps);
    }
    if (const std::string precision = builder.word("mixed_precision", "no");
        precision == "bf16" || precision == "fp16") {
      builder.option(precision, Json::boolean(true));
    }
  } else {
    set_data_parallel(builder, sizes.dp, type == "FSDP");
    builder.option("distributed_type", Json::string(type == "NO" ? "MULTI_GPU" : type));
    builder.option("mixed_precision", Json::string(builder.word("mixed_precision", "no")));
    const auto steps = builder.integer("gradient_accumulation_steps");
    builder.micro_batches(steps.value_or(1));
    if (!steps && request.micro_batches <= 0)
      builder.assume(
          "One micro-batch: the file does not say gradient_accumulation_steps, but the script may; give "
          "--micro-batches N.");
    builder.assume(
        "How the script forms its loss is not in the file: each rank's own mean, divided for its micro-batches "
        "(local_mean).");
    builder.assume(
        "Clipping is up to the script (accelerator.clip_grad_norm_): option max_norm of the framework accelerate.");
  }
  if (deepspeed && sizes.sp > 1) assume_ulysses_loss(builder);
  builder.assumed_model(sizes.tp);
  return builder.finish("Imported from an accelerate configuration", "imported-accelerate");
}

}  // namespace lockstep::importers
