// SPDX-License-Identifier: Apache-2.0
// DeepSpeed: runtime/config.py and runtime/zero/config.py. A configuration says how gradients are reduced and how large
// a batch is; the model and its tensor or pipeline parallelism live in the program.
#include "src/importers/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/importers/formats.h"
#include "src/importers/redact.h"
#include "src/importers/request.h"
#include "src/importers/syntax.h"

namespace lockstep::importers {

namespace {

struct SequenceParallel {
  std::int64_t sp = 1;
  std::int64_t batch_divisor = 1;  ///< DeepSpeed counts world / this as the ranks of a batch
};

/// deepspeed.initialize() makes a mesh with sequence parallelism where the configuration has both sizes. With
/// sequence_parallel_size alone only the batch is counted by it (runtime/config.py): the engine divides gradients by
/// all ranks. A unit that the script hands over is what --sp stands for.
SequenceParallel read_sequence_parallel(ScenarioBuilder& builder) {
  const std::int64_t asked = builder.request().sp, size = builder.degree("sequence_parallel_size");
  if (asked > 0) {
    builder.meaning("sequence_parallel_size", "nothing: --sp is given");
    return {asked, 1};
  }
  if (size == 1 || builder.given("data_parallel_size")) return {size, 1};
  builder.meaning("sequence_parallel_size", "batch.micro_batches, no layout.sp: data_parallel_size is not given");
  builder.assume(fmt::format(
      "No sequence parallelism: DeepSpeed takes sequence_parallel_size {} for the size of the batch alone where "
      "data_parallel_size is not beside it; give --sp {} where the training script hands a sequence-parallel unit "
      "(mpu) "
      "over.",
      size, size));
  return {1, size};
}

/// The ranks by which DeepSpeed counts a batch.
std::int64_t batch_ranks(ScenarioBuilder& builder, std::int64_t dp, std::int64_t divisor) {
  if (dp % divisor == 0) return dp / divisor;
  builder.mistake("sequence_parallel_size", fmt::format("{} data-parallel ranks do not divide by it", dp));
  return 0;
}

/// The mesh of both sizes has to be all ranks.
void check_mesh(ScenarioBuilder& builder, std::int64_t dp) {
  if (dp == 0 || !builder.given("data_parallel_size")) return;
  const std::int64_t size = builder.degree("data_parallel_size");
  if (!builder.given("sequence_parallel_size")) {
    builder.meaning("data_parallel_size", "nothing: DeepSpeed reads it beside sequence_parallel_size alone");
  } else if (size != dp) {
    builder.mistake("data_parallel_size", fmt::format("it is {}, but there are {} data-parallel ranks", size, dp));
  }
}

/// Where a part of the batch is "auto", the number of micro-batches is the training script's.
bool assume_batch_of_script(ScenarioBuilder& builder) {
  for (const char* key : {"gradient_accumulation_steps", "train_batch_size", "train_micro_batch_size_per_gpu"}) {
    if (!builder.is_auto(key)) continue;
    builder.assume(
        fmt::format("One micro-batch: {} is \"auto\", which the training script or its Trainer fills in; "
                    "give --micro-batches N.",
                    key));
    return true;
  }
  return false;
}

}  // namespace

std::int64_t set_deepspeed_batch(ScenarioBuilder& builder, std::int64_t dp, std::int64_t steps_otherwise) {
  const auto batch = builder.integer("train_batch_size");
  const auto micro = builder.integer("train_micro_batch_size_per_gpu");
  std::optional<std::int64_t> steps = builder.integer("gradient_accumulation_steps");
  const bool are_given = builder.mentioned("gradient_accumulation_steps");
  if (!are_given && steps_otherwise > 0) steps = steps_otherwise;
  for (const auto& [key, value] :
       {std::pair("train_batch_size", batch), std::pair("train_micro_batch_size_per_gpu", micro),
        std::pair("gradient_accumulation_steps", steps)}) {
    if (value && *value < 1) {
      builder.mistake(key, "expected a number of at least 1");
      return 0;
    }
  }
  if (dp == 0) return 0;  // said already
  const std::int64_t all = batch.value_or(0);
  if (batch && micro && steps && all != *micro * *steps * dp) {
    builder.mistake("train_batch_size",
                    fmt::format("it is not train_micro_batch_size_per_gpu {} × gradient_accumulation_steps {} × "
                                "{} data-parallel ranks; DeepSpeed refuses that",
                                *micro, *steps, dp));
  } else if (batch && micro && all % (*micro * dp) != 0) {
    builder.mistake(
        "train_batch_size",
        fmt::format("it does not divide by train_micro_batch_size_per_gpu {} × {} data-parallel ranks", *micro, dp));
  } else if (batch && steps && all % (*steps * dp) != 0) {
    builder.mistake(
        "train_batch_size",
        fmt::format("it does not divide by gradient_accumulation_steps {} × {} data-parallel ranks; DeepSpeed "
                    "refuses that",
                    *steps, dp));
  } else if (batch && all % dp != 0) {
    builder.mistake("train_batch_size",
                    fmt::format("it does not divide by {} data-parallel ranks; DeepSpeed refuses that", dp));
  } else if (steps || (batch && micro)) {
    const std::int64_t count = steps ? *steps : all / (*micro * dp);
    builder.micro_batches(count);
    return count;
  } else {
    if (builder.request().micro_batches > 0) return 1;  // which stands in the scenario
    if (!assume_batch_of_script(builder))
      builder.assume("One micro-batch: gradient_accumulation_steps is 1 where the configuration does not say it.");
    return 1;
  }
  return 0;
}

void check_deepspeed_batch_is_given(ScenarioBuilder& builder) {
  // "auto" is there, and filled in.
  if (builder.mentioned("train_batch_size") || builder.mentioned("train_micro_batch_size_per_gpu")) return;
  builder.mistake("",
                  "DeepSpeed: Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided; the "
                  "configuration has neither");
}

namespace {

const KeyTable& table_of_deepspeed() {
  static const KeyTable table("deepspeed");
  return table;
}

std::string release_of_deepspeed() { return table_of_deepspeed().other("release")->text(); }

/// Judges the rest without a key that DeepSpeed refuses.
void leave_out_refused(ScenarioBuilder& builder, const std::string& key) {
  builder.leave_out(key);
  builder.assume(fmt::format("{} refuses {}: what is judged is the configuration without it.", release_of_deepspeed(),
                             shown_key(key)));
}

/// What DeepSpeed refuses with any value, and its words.
const std::vector<std::pair<std::string, std::string>>& removed_keys() {
  static const std::vector<std::pair<std::string, std::string>> removed = {
      {"nebula", "Nebula checkpointing has been removed"},
      {"compression_training", "The DeepSpeed compression library has been removed"},
      {"amp",
       "NVIDIA Apex AMP integration has been removed. Use DeepSpeed 'fp16', 'bf16', or 'torch_autocast' instead"},
      {"quantize_training", "Mixture-of-Quantization (MoQ) / 'quantize_training' has been removed"},
      {"sparse_gradients", "Sparse compression of dense torch.nn.Embedding gradients has been removed"},
      {"eigenvalue", "Eigenvalue-based Mixture-of-Quantization (MoQ) has been removed"},
      {"sparse_attention", "DeepSpeed Sparse Attention has been removed"},
      {"elasticity", "Elastic training has been removed"},
      {"graph_harvesting", "Graph harvesting has been removed"},
      {"curriculum_learning", "Legacy top-level 'curriculum_learning' has been removed"},
      {"progressive_layer_drop", "Progressive Layer Dropping has been removed"},
      {"zero_optimization.mics_shard_size",
       "MiCS ZeRO-3 sharding has been removed; 'zero_optimization.mics_shard_size' is no longer supported. A scenario "
       "can describe the tree of edaa7221, which has it: option mics_shard_size of the framework deepspeed"},
      {"zero_optimization.mics_hierarchical_params_gather", "MiCS ZeRO-3 sharding has been removed"},
      {"zero_optimization.zeropp_loco_param", "LoCo-Zero++ has been removed"}};
  return removed;
}

/// The section in which DeepSpeed knows no key that `key` begins with, and how that is named there; "" for none.
struct UnknownKey {
  std::string section, name;
  std::vector<std::string> known;
};

UnknownKey unknown_key(const std::string& key) {
  const Json& sections = *table_of_deepspeed().other("sections");
  for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1)) {
    const Json* known = sections.find(key.substr(0, dot));
    if (known == nullptr) continue;
    UnknownKey found{key.substr(0, dot), key.substr(dot + 1, key.find('.', dot + 1) - dot - 1), {}};
    for (const Json& one : known->items()) found.known.push_back(one.text());
    if (std::find(found.known.begin(), found.known.end(), found.name) == found.known.end()) return found;
  }
  return {};
}

/// What DeepSpeed takes an object for, and is none: "offload_param": false. "zero_optimization" has a row of its own.
void refuse_sections_that_are_none(ScenarioBuilder& builder) {
  for (const Setting& setting : builder.settings().all()) {
    const Json& value = setting.value;
    const bool is_section = table_of_deepspeed().other("sections")->find(setting.key) != nullptr;
    if (setting.written.starts_with("--")) continue;  // Megatron's own --fp16
    if (!is_section || value.is_null() || value.is_object() || setting.key == "zero_optimization") continue;
    if (builder.request().ignore_unknown) {
      leave_out_refused(builder, setting.key);
    } else {
      builder.mistake(setting.key, fmt::format("{} refuses {} here: it expects an object; without the key it is off. "
                                               "--ignore-unknown judges the rest without it",
                                               release_of_deepspeed(), kind_of(value)));
    }
  }
}

/// In its sections DeepSpeed takes the keys that it knows, and no others (runtime/config_utils.py).
void refuse_unknown_keys(ScenarioBuilder& builder) {
  const auto is_removed = [](const std::string& key) {
    return std::ranges::any_of(removed_keys(),
                               [&](const auto& one) { return key == one.first || key.starts_with(one.first + "."); });
  };
  for (const Setting& setting : builder.settings().all()) {
    // DeepSpeed drops "auto" before it looks at the key.
    if (setting.is_auto || is_removed(setting.key)) continue;
    const UnknownKey found = unknown_key(setting.key);
    if (found.section.empty()) continue;
    if (builder.request().ignore_unknown) {
      leave_out_refused(builder, setting.key);
    } else {
      builder.mistake(
          setting.key,
          fmt::format("{} refuses this key: it knows none of that name in {}{}{} --ignore-unknown judges the "
                      "rest without it",
                      release_of_deepspeed(), found.section, did_you_mean(found.name, found.known),
                      did_you_mean(found.name, found.known).empty() ? ";" : ""));
    }
  }
}

void refuse_removed_keys(ScenarioBuilder& builder) {
  // What the training is without them: they say what weights or data are, and where states are kept, and nothing of
  // how gradients are reduced.
  static const std::set<std::string> spare = {"nebula",     "compression_training", "quantize_training",
                                              "eigenvalue", "graph_harvesting",     "curriculum_learning"};
  for (const auto& [key, words] : removed_keys()) {
    const std::string found = builder.mentioned_at(key);
    if (found.empty()) continue;
    if (spare.contains(key) && builder.request().ignore_unknown) {
      leave_out_refused(builder, key);
    } else {
      builder.mistake(found, fmt::format("{} refuses this key, with any value: {}{}", release_of_deepspeed(), words,
                                         spare.contains(key) ? "; --ignore-unknown judges the rest without it" : ""));
    }
  }
}

}  // namespace

void refuse_keys_of_deepspeed(ScenarioBuilder& builder) {
  refuse_removed_keys(builder);
  refuse_unknown_keys(builder);
  refuse_sections_that_are_none(builder);
  const Json* optimizer = builder.value("optimizer.type");
  const std::string type = optimizer != nullptr && optimizer->is_string() ? optimizer->text() : "";
  if (same_word(type, "OneBitAdam") || same_word(type, "ZeroOneAdam") || same_word(type, "OneBitLamb"))
    builder.mistake("optimizer.type",
                    "1-bit optimizers exchange compressed momenta in the place of gradients, which lockstep does not "
                    "describe");
}

Settings read_deepspeed(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics) {
  Settings settings;
  const Json root = read_hjson(source, diagnostics);
  if (!is_configuration(root, source, diagnostics)) return settings;
  Settings written;
  flatten(root, written);
  for (Setting setting : written.all()) {
    setting.is_auto = setting.value.is_string() && setting.value.text() == "auto";
    if (setting.is_auto) setting.value = Json().at(setting.value.place());  // as if not given
    settings.set(std::move(setting));
  }
  return settings;
}

void assume_ulysses_loss(ScenarioBuilder& builder) {
  builder.assume(
      "How the training script forms its loss with Ulysses is not in the configuration, and no way is right for every "
      "ZeRO stage: gathered, as DeepSpeed's tutorial does; give --option ulysses_loss=local_mean, local_mean_over_sp "
      "or "
      "gathered_own_slice for another (docs/frameworks/deepspeed.md).");
}

Imported import_deepspeed(const ImportRequest& request, Diagnostics& diagnostics) {
  if (!has_one_file(request, "DeepSpeed", diagnostics)) return {};
  Settings settings = read_deepspeed(request.files.front(), diagnostics);
  if (!diagnostics.empty()) return {};
  ScenarioBuilder builder(request, "deepspeed", std::move(settings), diagnostics);
  const auto [sp, batch_divisor] = read_sequence_parallel(builder);
  const std::int64_t tp = std::max<std::int64_t>(request.tp, 1), pp = std::max<std::int64_t>(request.pp, 1);
  // Both sizes of a mesh say what the ranks are.
  const std::int64_t mesh = sp > 1 ? builder.integer("data_parallel_size", 0) * sp : 0;
  const std::int64_t world = request.world > 0 ? request.world : mesh <= largest_import_size ? mesh : 0;
  const std::int64_t dp = builder.data_parallel_size(world, {{"tensor", tp}, {"pipeline", pp}, {"Ulysses", sp}});
  check_mesh(builder, dp);
  builder.axis("tp", tp);
  builder.axis("sp", sp);
  builder.axis("dp", dp);
  builder.axis("pp", pp);
  builder.axis("ep", request.ep > 0 ? request.ep : 1);
  set_deepspeed_batch(builder, batch_ranks(builder, dp, batch_divisor));
  check_deepspeed_batch_is_given(builder);
  refuse_keys_of_deepspeed(builder);
  builder.assumed_model(tp);
  if (sp > 1) assume_ulysses_loss(builder);
  return builder.finish("Imported from a DeepSpeed configuration", "imported-deepspeed");
}

}  // namespace lockstep::importers
