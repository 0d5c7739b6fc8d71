// SPDX-License-Identifier: Apache-2.0
// Hugging Face accelerate: the file that `accelerate config` writes. With DeepSpeed the configuration that it names may
// follow as a second file.
#include <fmt/format.h>

#include <algorithm>

#include "src/importers/deepspeed.h"
#include "src/importers/formats.h"
#include "src/importers/redact.h"
#include "src/importers/request.h"
#include "src/importers/syntax.h"

namespace lockstep::importers {

namespace {

std::string parallelism(const std::string& name) { return "parallelism_config.parallelism_config_" + name; }

const KeyTable& table_of_accelerate() {
  static const KeyTable table("accelerate");
  return table;
}

std::vector<std::string> keys_at_the_top() {
  std::vector<std::string> keys;
  for (const Json& key : table_of_accelerate().other("top")->items()) keys.push_back(key.text());
  return keys;
}

/// Where accelerate knows a key that it does not know at the top, with a question; "" where it knows none.
std::string meant_by(const std::string& key, const std::vector<std::string>& top) {
  for (const std::string& known : table_of_accelerate().known()) {
    if (known.ends_with("." + key)) return fmt::format("; did you mean \"{}\"?", known);
  }
  return did_you_mean(key, top);
}

/// from_yaml_file() in commands/config/config_args.py takes the fields of ClusterConfig, and nothing else.
void refuse_keys_at_the_top(const Json& root, Diagnostics& diagnostics) {
  const Json* type = root.find("distributed_type");
  if (type == nullptr)
    diagnostics.add({}, "A `distributed_type` must be specified in the config file (accelerate's words)");
  const std::vector<std::string> top = keys_at_the_top();
  const KeyTable deepspeed("deepspeed");
  for (const Json::Member& member : root.members()) {
    const std::string& key = member.key;
    if (std::find(top.begin(), top.end(), key) != top.end()) continue;
    std::string meant = meant_by(key, top);
    if (meant.empty() && (deepspeed.row(key) != nullptr || deepspeed.other("sections")->find(key) != nullptr))
      meant = "; it is one of DeepSpeed's own file, which deepspeed_config.deepspeed_config_file names";
    const bool is_batch = key == "gradient_accumulation_steps";
    if (is_batch && type != nullptr && (!type->is_string() || type->text() != "DEEPSPEED"))
      meant = "; the training script says it: take it away, and give --micro-batches N";
    diagnostics.add(member.key_place,
                    fmt::format("{}: accelerate refuses this key, with any value: it knows none of that name at the "
                                "top of its file (ValueError, \"had unknown keys\"){}",
                                shown_key(key), meant));
  }
}

Settings read_configuration(const ImportRequest& request, Diagnostics& diagnostics) {
  Settings settings;
  const Json root = read_yaml(request.files.front(), diagnostics);
  if (!is_configuration(root, request.files.front(), diagnostics)) return settings;
  Settings written;
  flatten(root, written);
  const Setting* environment = written.find("compute_environment");
  const bool is_local = environment == nullptr || environment->value.is_null() ||
                        (environment->value.is_string() && environment->value.text() == "LOCAL_MACHINE");
  if (is_local) refuse_keys_at_the_top(root, diagnostics);
  const std::vector<std::string> top = keys_at_the_top();
  for (Setting setting : written.all()) {
    // What mixed_precision was called once; process_config() takes it away.
    if (setting.key == "fp16") {
      if (written.find("mixed_precision") != nullptr || !boolean_of(setting.value).value_or(false)) continue;
      setting.key = "mixed_precision";
      setting.value = Json::string("fp16", setting.place);
    }
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
      if (std::find(top.begin(), top.end(), setting.key.substr(0, setting.key.find('.'))) != top.end()) {
        diagnostics.add(setting.place,
                        fmt::format("{}: this is a key of accelerate's own file, and DeepSpeed reads none of that "
                                    "name; take it away",
                                    shown_key(setting.key)));
        continue;
      }
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

/// Both sizes are the script's mesh with accelerate, which hands its own over.
void refuse_mesh_of_deepspeed(ScenarioBuilder& builder) {
  if (builder.integer("sequence_parallel_size", 1) != 1)
    builder.mistake("sequence_parallel_size",
                    "with accelerate the size of sequence parallelism is parallelism_config_sp_size");
  builder.meaning("sequence_parallel_size", "nothing: it is 1");
  if (builder.given("data_parallel_size"))
    builder.mistake("data_parallel_size",
                    "with accelerate the number of data-parallel ranks follows from parallelism_config");
}

/// What accelerate reads nowhere in its section deepspeed_config: keys of DeepSpeed's own file.
void refuse_keys_in_wrong_file(ScenarioBuilder& builder) {
  const KeyTable deepspeed("deepspeed");
  constexpr std::string_view section = "deepspeed_config.";
  std::vector<std::string> keys;
  for (const Setting& setting : builder.settings().all()) {
    if (!setting.key.starts_with(section) || table_of_accelerate().row(setting.key) != nullptr ||
        !table_of_accelerate().ignored(setting.key).empty())
      continue;
    if (deepspeed.row(setting.key.substr(section.size())) != nullptr) keys.push_back(setting.key);
  }
  for (const std::string& key : keys) {
    if (!builder.request().ignore_unknown)
      builder.mistake(key,
                      "accelerate reads no key of this name here; it is one of DeepSpeed's own file, which "
                      "deepspeed_config_file names; --ignore-unknown leaves it out");
    builder.leave_out(key);
  }
}

/// The number of micro-batches: that of DeepSpeed's own file where there is one, which accelerate completes with 1
/// (DeepSpeedPlugin in utils/dataclasses.py); else what the script hands to its Accelerator, where the file leaves it
/// open.
void set_batch(ScenarioBuilder& builder, bool has_file, std::int64_t dp) {
  constexpr const char* key = "deepspeed_config.gradient_accumulation_steps";
  const auto steps = builder.integer(key);
  if (steps && *steps < 1) {
    builder.mistake(key, "expected a number of at least 1");
  } else if (steps) {
    builder.micro_batches(*steps);
  } else if (has_file) {
    set_deepspeed_batch(builder, dp, 1);
    if (!builder.mentioned("gradient_accumulation_steps") && builder.request().micro_batches <= 0)
      builder.assume(
          "One micro-batch: accelerate takes gradient_accumulation_steps 1 where DeepSpeed's file does not "
          "say it.");
  } else if (builder.request().micro_batches <= 0) {
    builder.assume(builder.mentioned(key)
                       ? "One micro-batch: gradient_accumulation_steps is auto, which the script may say; give "
                         "--micro-batches N."
                       : "One micro-batch: the file does not say gradient_accumulation_steps, but the script may; give "
                         "--micro-batches N.");
  }
}

/// What accelerate makes of its own keys where there is no file of DeepSpeed's (DeepSpeedPlugin).
void set_options_of_section(ScenarioBuilder& builder, bool has_file) {
  const auto stage = builder.number("deepspeed_config.zero_stage");
  if (stage) builder.option("zero_stage", json_number(*stage));
  if (!stage && !has_file) {
    builder.option("zero_stage", json_integer(2));
    builder.assume("ZeRO stage 2: accelerate takes it where the file says none.");
  }
  const auto clipping = builder.number("deepspeed_config.gradient_clipping");
  if (clipping && *clipping == Rational(0)) {
    builder.meaning("deepspeed_config.gradient_clipping",
                    "nothing: accelerate does not hand 0 on, and DeepSpeed clips as without the key");
  } else if (clipping) {
    builder.option("gradient_clipping", json_number(*clipping));
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
    const bool names_file = builder.value("deepspeed_config.deepspeed_config_file") != nullptr;
    const bool has_file = names_file || request.files.size() > 1;  // an option of the launcher may name it as well
    builder.meaning("deepspeed_config.deepspeed_config_file", "the second file");
    if (names_file && request.files.size() == 1) {
      builder.mistake("deepspeed_config.deepspeed_config_file", "give that file behind this one");
    }
    set_options_of_section(builder, has_file);
    builder.axis("dp", sizes.dp);
    refuse_mesh_of_deepspeed(builder);
    refuse_keys_in_wrong_file(builder);
    refuse_keys_of_deepspeed(builder);
    if (has_file) check_nothing_is_said_twice(builder);
    if (request.files.size() > 1 && builder.mentioned_at("zero_optimization").empty())
      builder.mistake("deepspeed_config.deepspeed_config_file",
                      "accelerate refuses that file: Please specify the ZeRO optimization config in the DeepSpeed "
                      "config (ValueError)");
    set_batch(builder, has_file, sizes.dp);
    if (const std::string precision = builder.word("mixed_precision", "no");
        precision == "bf16" || precision == "fp16") {
      builder.option(precision, Json::boolean(true));
    }
  } else {
    set_data_parallel(builder, sizes.dp, type == "FSDP");
    builder.option("distributed_type", Json::string(type == "NO" ? "MULTI_GPU" : type));
    builder.option("mixed_precision", Json::string(builder.word("mixed_precision", "no")));
    if (request.micro_batches <= 0)
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
