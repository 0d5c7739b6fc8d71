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
  flatten(root, settings);
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

ParallelismSizes read_parallelism(Draft& draft) {
  const ImportRequest& request = draft.request();
  ParallelismSizes sizes;
  sizes.tp = draft.degree(parallelism("tp_size"), request.tp);
  sizes.cp = draft.degree(parallelism("cp_size"), request.cp);
  sizes.sp = draft.degree(parallelism("sp_size"), request.sp);
  sizes.dp = draft.data_parallel_size(draft.world_size("num_processes"),
                                      {{"tensor", sizes.tp}, {"context", sizes.cp}, {"sequence", sizes.sp}});
  return sizes;
}

/// What stands in DeepSpeed's own file may not stand beside its name (_deepspeed_config_checks in
/// utils/dataclasses.py).
void check_nothing_is_said_twice(Draft& draft) {
  for (const char* key : {"deepspeed_config.gradient_accumulation_steps", "deepspeed_config.gradient_clipping",
                          "deepspeed_config.zero_stage", "deepspeed_config.offload_optimizer_device",
                          "deepspeed_config.offload_param_device", "deepspeed_config.offload_param_nvme_path",
                          "deepspeed_config.offload_optimizer_nvme_path", "deepspeed_config.zero3_save_16bit_model"}) {
    if (draft.mentioned(key))
      draft.mistake(key,
                    "accelerate refuses this key beside deepspeed_config_file (ValueError); it belongs into that file");
  }
  if (draft.given("mixed_precision")) {
    draft.mistake(
        "mixed_precision",
        "accelerate refuses this key beside deepspeed_config_file (ValueError): bf16 or fp16 belong into that "
        "file");
  }
}

/// The launcher starts several processes for MULTI_GPU, FSDP and DeepSpeed, and one for NO, whatever num_processes
/// says.
void check_processes(Draft& draft, const std::string& type) {
  const std::int64_t processes = draft.integer("num_processes", 1);
  if (type != "NO" || processes <= 1 || draft.request().world == 1) return;
  draft.mistake("num_processes",
                fmt::format("accelerate starts one process with distributed_type NO, not {}; give MULTI_GPU for {}, or "
                            "--world-size 1",
                            processes, processes));
}

/// Which part of the data-parallel ranks shards, and which replicates.
void set_data_parallel(Draft& draft, std::int64_t dp, bool fsdp) {
  const std::int64_t replicate = draft.degree(parallelism("dp_replicate_size"));
  const std::int64_t shard = draft.degree(parallelism("dp_shard_size"));
  const std::string strategy = draft.word("fsdp_config.fsdp_sharding_strategy", "FULL_SHARD");
  const bool hybrid = fsdp && (strategy.starts_with("HYBRID_SHARD") || strategy == "4" || strategy == "5");
  if (dp == 0) return;  // said already
  if (hybrid) {
    const std::int64_t machines = draft.integer("num_machines", 1);
    if (machines < 1 || dp % machines != 0) {
      draft.mistake("num_machines", fmt::format("{} data-parallel ranks do not divide by it", dp));
      return;
    }
    draft.axis("dp_shard", dp / machines);
    draft.axis("dp_replicate", machines);
    draft.assume(fmt::format("HYBRID_SHARD shards over the {} ranks of a machine, as PyTorch does.", dp / machines));
    return;
  }
  if (replicate > 1 && shard == 1 && fsdp) {
    draft.mistake(parallelism("dp_replicate_size"), "accelerate refuses replicas without dp_shard_size");
  } else if (draft.given(parallelism("dp_shard_size")) && replicate * shard != dp) {
    draft.mistake(parallelism("dp_shard_size"),
                  fmt::format("replicate {} × shard {} are not the {} data-parallel ranks", replicate, shard, dp));
  } else if (replicate > 1 && shard > 1) {
    draft.axis("dp_shard", shard);
    draft.axis("dp_replicate", replicate);
  } else {
    draft.axis("dp", dp);
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
  Draft draft(request, "accelerate", std::move(settings), diagnostics);
  const std::string type = draft.word("distributed_type", "NO");
  const bool deepspeed = type == "DEEPSPEED";
  if (!deepspeed && request.files.size() > 1) {
    diagnostics.add({}, "a second file is a DeepSpeed configuration, but distributed_type is not DEEPSPEED");
    return {};
  }
  if (type == "MEGATRON_LM") {
    draft.mistake("distributed_type",
                  "with MEGATRON_LM the arguments of Megatron-LM count: import what it prints at start, with `lockstep "
                  "import megatron`");
    return {};
  }
  check_processes(draft, type);
  const ParallelismSizes sizes = read_parallelism(draft);
  draft.axis("tp", sizes.tp);
  draft.axis("cp", sizes.cp);
  draft.axis("sp", sizes.sp);
  if (deepspeed) {
    draft.framework("deepspeed");
    draft.also_knows("deepspeed");
    draft.runs_on("deepspeed");
    const bool has_file = draft.value("deepspeed_config.deepspeed_config_file") != nullptr;
    draft.meaning("deepspeed_config.deepspeed_config_file", "the second file");
    if (has_file && request.files.size() == 1) {
      draft.mistake("deepspeed_config.deepspeed_config_file", "give that file behind this one");
    }
    for (const auto& [from, to] :
         {std::pair("zero_stage", "zero_stage"), std::pair("gradient_clipping", "gradient_clipping")}) {
      const std::string key = std::string("deepspeed_config.") + from;
      if (const auto number = draft.number(key)) draft.option(to, json_number(*number));
    }
    draft.axis("dp", sizes.dp);
    refuse_what_deepspeed_removed(draft);
    if (has_file) check_nothing_is_said_twice(draft);
    const auto steps = draft.integer("deepspeed_config.gradient_accumulation_steps");
    if (draft.given("gradient_accumulation_steps") || draft.given("train_batch_size") || !steps) {
      set_deepspeed_batch(draft, sizes.dp);
    } else {
      draft.micro_batches(*steps);
    }
    if (const std::string precision = draft.word("mixed_precision", "no"); precision == "bf16" || precision == "fp16") {
      draft.option(precision, Json::boolean(true));
    }
  } else {
    set_data_parallel(draft, sizes.dp, type == "FSDP");
    draft.option("distributed_type", Json::string(type == "NO" ? "MULTI_GPU" : type));
    draft.option("mixed_precision", Json::string(draft.word("mixed_precision", "no")));
    const auto steps = draft.integer("gradient_accumulation_steps");
    draft.micro_batches(steps.value_or(1));
    if (!steps)
      draft.assume(
          "One micro-batch: the file does not say gradient_accumulation_steps, but the script may; give "
          "--micro-batches N.");
    draft.assume(
        "Clipping is up to the script (accelerator.clip_grad_norm_): option max_norm of the framework accelerate.");
  }
  draft.assumed_model(sizes.tp);
  return draft.finish("Imported from an accelerate configuration", "imported-accelerate");
}

}  // namespace lockstep::importers
