// SPDX-License-Identifier: Apache-2.0
// Which pipeline stage of Megatron-LM holds which layer (core/transformer/transformer_block.py,
// get_num_layers_to_build; training/arguments.py). A block is a virtual stage: block b is chunk b / pp of stage b % pp,
// and the layers fill the blocks in order.
#include "src/importers/megatron_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <numeric>

#include "src/base/at.h"
#include "src/base/counted.h"

namespace lockstep::importers {

namespace {

struct Split {
  std::int64_t layers = 0, pp = 1, virtual_stages = 1;
  std::int64_t blocks() const { return pp * virtual_stages; }
};

using Counts = std::vector<std::int64_t>;  // layers by block

/// The number of layers: that of --size where it is given there.
std::int64_t number_of_layers(ScenarioBuilder& builder) {
  std::int64_t layers = builder.integer("num_layers", 0);
  for (const std::string& size : builder.request().sizes) {
    constexpr std::string_view name = "layers=";
    if (size.starts_with(name)) std::from_chars(size.data() + name.size(), size.data() + size.size(), layers);
  }
  return layers;
}

std::int64_t virtual_stages(ScenarioBuilder& builder, std::int64_t layers, std::int64_t pp) {
  const auto stages = builder.integer("num_virtual_stages_per_pipeline_rank");
  const auto per_stage = builder.integer("num_layers_per_virtual_pipeline_stage");
  // Resolved arguments hold what follows from the two.
  if (builder.given("virtual_pipeline_model_parallel_size"))
    return builder.degree("virtual_pipeline_model_parallel_size");
  if (stages && per_stage) {
    builder.mistake("num_virtual_stages_per_pipeline_rank",
                    "Megatron takes this or num_layers_per_virtual_pipeline_stage, not both");
    return 1;
  }
  if (!per_stage) return builder.degree("num_virtual_stages_per_pipeline_rank");
  layers += builder.boolean("account_for_embedding_in_pipeline_split", false) ? 1 : 0;
  layers += builder.boolean("account_for_loss_in_pipeline_split", false) ? 1 : 0;
  if (*per_stage >= 1 && layers % pp == 0 && layers / pp % *per_stage == 0) return layers / pp / *per_stage;
  builder.mistake(
      "num_layers_per_virtual_pipeline_stage",
      fmt::format("number of layers per pipeline stage must be divisible number of layers per virtual pipeline "
                  "stage (Megatron's words); found {} on {}, {} in each virtual one",
                  counted(layers, "layer"), counted(pp, "stage"), *per_stage));
  return 1;
}

/// The layers of a stage, dealt to its virtual ones; 0 and a mistake where they do not divide.
std::int64_t layers_of_block(ScenarioBuilder& builder, std::string_view key, std::int64_t layers, const Split& split) {
  if (layers % split.virtual_stages == 0) return layers / split.virtual_stages;
  builder.mistake(
      key, fmt::format("num_layers_per_pipeline_rank {} should be divisible by vp_size {} (Megatron's words)", layers,
                       split.virtual_stages));
  return 0;
}

/// decoder_first_pipeline_num_layers and decoder_last_pipeline_num_layers.
Counts uneven(ScenarioBuilder& builder, const Split& split, std::optional<std::int64_t> first,
              std::optional<std::int64_t> last) {
  const std::string_view key = first ? "decoder_first_pipeline_num_layers" : "decoder_last_pipeline_num_layers";
  const std::int64_t left = split.layers - first.value_or(0) - last.value_or(0);
  const std::int64_t stages = split.pp - (first ? 1 : 0) - (last ? 1 : 0);
  if (first.value_or(1) < 1 || last.value_or(1) < 1) {
    builder.mistake(key, "the number of layers of a stage must be larger than 0");
    return {};
  }
  if (left < 0 || stages < 0 || (left > 0) != (stages > 0)) {
    builder.mistake(key,
                    fmt::format("Mismatch: {} middle layers remaining but {} middle PP stages available (Megatron's "
                                "words)",
                                left, stages));
    return {};
  }
  if (stages > 0 && left % stages != 0) {
    builder.mistake(key,
                    fmt::format("With uneven pipelineing the left over layers must be divisible by left over stages "
                                "(Megatron's words); found {} for {}",
                                counted(left, "layer"), counted(stages, "stage")));
    return {};
  }
  Counts counts;
  for (std::int64_t block = 0; block < split.blocks(); ++block) {
    const std::int64_t stage = block % split.pp;
    const std::int64_t layers = stage == 0 && first             ? *first
                                : stage == split.pp - 1 && last ? *last
                                                                : left / std::max<std::int64_t>(stages, 1);
    counts.push_back(layers_of_block(builder, key, layers, split));
  }
  return counts;
}

/// The same number everywhere, less one where the embedding or the loss counts as a layer.
Counts even(ScenarioBuilder& builder, const Split& split) {
  const bool embedding = builder.boolean("account_for_embedding_in_pipeline_split", false);
  const bool loss = builder.boolean("account_for_loss_in_pipeline_split", false);
  const std::int64_t all = split.layers + (embedding ? 1 : 0) + (loss ? 1 : 0);
  if (all % split.pp != 0 && builder.boolean("deepspeed", false)) {
    // partition_method "type:transformer" of megatron/model/gpt_model.py (Megatron-DeepSpeed).
    builder.mistake("num_layers",
                    fmt::format("DeepSpeed cuts {} into {} of unequal length, and lockstep deals them out evenly; give "
                                "--size layers=N, a number that divides",
                                counted(all, "layer"), counted(split.pp, "stage")));
    return {};
  }
  if (all % split.pp != 0) {
    builder.mistake("num_layers",
                    fmt::format("Number of layers should be divisible by the pipeline-model-parallel size (Megatron's "
                                "words); found {} on {}; without a remainder they are dealt out with "
                                "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers or "
                                "--pipeline-model-parallel-layout",
                                counted(all, "layer"), counted(split.pp, "stage")));
    return {};
  }
  Counts counts(static_cast<std::size_t>(split.blocks()),
                layers_of_block(builder, "num_layers", all / split.pp, split));
  if (embedding) --counts.front();
  if (loss) --counts.back();
  return counts;
}

/// The edit that moves parameters to a block.
Json placement(const std::string& parameters, std::int64_t block, const Split& split) {
  Json edit = Json::object();
  edit.set("parameter", Json::string(parameters));
  edit.set("stage", json_integer(block % split.pp));
  if (split.virtual_stages > 1) edit.set("chunk", json_integer(block / split.pp));
  return edit;
}

/// pipeline_model_parallel_layout: the number of virtual stages follows from it.
Counts by_hand(ScenarioBuilder& builder, Split& split) {
  constexpr std::string_view key = "pipeline_model_parallel_layout";
  const Json& layout = *builder.value(key);
  const auto stages = layout.is_string() ? read_megatron_layout(layout.text()) : std::nullopt;
  const auto refuse = [&](const std::string& why) {
    builder.mistake(key, why);
    return Counts{};
  };
  if (!stages) return refuse("expected a layout of E, t, m, L and bars, such as Et*3|(tt|)*29,m|L");
  const auto number = static_cast<std::int64_t>(stages->size());
  if (number % split.pp != 0) {
    return refuse(
        fmt::format("The length of pipeline_model_parallel_layout must be divisible by "
                    "pipeline_model_parallel_size (Megatron's words); found {}, and {}",
                    counted(number, "stage"), split.pp));
  }
  split.virtual_stages = number / split.pp;
  const std::int64_t depths = builder.integer("mtp_num_layers", 0);
  std::int64_t layers = 0, mtp = 0;
  Counts counts;
  for (const MegatronStage& stage : *stages) {
    counts.push_back(stage.layers);
    layers += stage.layers;
    mtp += stage.mtp;
    const bool first = &stage == &stages->front(), last = &stage == &stages->back();
    if (stage.embeddings != (first ? 1 : 0) || stage.losses != (last ? 1 : 0))
      return refuse("expected the embedding E in the first stage and the loss L in the last, once each");
    if (stage.mtp > 0 && stage.mtp != depths)
      return refuse("All of the MTP layers must be in the same one virtual pipeline stage (Megatron's words)");
  }
  if (layers != split.layers) {
    return refuse(
        fmt::format("Number of decoder layers {} must match num_layers {} (Megatron's words)", layers, split.layers));
  }
  if (mtp != depths) {
    return refuse(
        fmt::format("Number of mtp layers in layout must match mtp_num_layers (Megatron's words); found {} "
                    "and {}",
                    mtp, depths));
  }
  if (depths == 0) return counts;
  if (stages->back().mtp == 0)
    return refuse(
        "lockstep describes multi-token prediction on the last stage only, where the loss is; write m in front of L");
  // With multi-token prediction the last norm lies with the last layer.
  std::size_t last_layer = 0;
  for (std::size_t block = 0; block < stages->size(); ++block) {
    if ((*stages)[block].layers > 0) last_layer = block;
  }
  if (last_layer + 1 < stages->size())
    builder.edit(placement("decoder.final_layernorm.*", static_cast<std::int64_t>(last_layer), split));
  return counts;
}

/// Edits for the layers that do not lie where the preset puts them.
void place_layers(ScenarioBuilder& builder, const Split& split, const Counts& counts) {
  std::int64_t layer = 0;
  for (std::int64_t block = 0; block < split.blocks(); ++block) {
    for (std::int64_t i = 0; i < counts[at(block)]; ++i, ++layer) {
      if (layer * split.blocks() / split.layers == block) continue;
      builder.edit(placement(fmt::format("decoder.layers.{}.*", layer), block, split));
    }
  }
}

/// What validate_args asserts of an interleaved schedule; with overlap, Megatron's default, pp 2 is enough.
void check_interleaving(ScenarioBuilder& builder, const Split& split) {
  if (split.virtual_stages == 1) {
    builder.meaning("overlap_p2p_comm", "nothing: there are no virtual stages");
  } else if (!builder.boolean("overlap_p2p_comm", true) && split.pp <= 2) {
    builder.mistake(
        "overlap_p2p_comm",
        "When interleaved schedule is used and p2p communication overlap is disabled, "
        "pipeline-model-parallel size should be greater than 2 to avoid having multiple p2p sends and recvs "
        "between same 2 ranks per communication batch (Megatron's words)");
  } else if (split.pp == 1) {
    builder.mistake(
        "pipeline_model_parallel_size",
        "When interleaved schedule is used, pipeline-model-parallel size should be greater than 1 (Megatron's "
        "words)");
  }
}

}  // namespace

bool is_replaced(const ScenarioBuilder& builder, const std::string& size) {
  const std::vector<std::string>& sizes = builder.request().sizes;
  return std::any_of(sizes.begin(), sizes.end(), [&](const std::string& one) { return one.starts_with(size + "="); });
}

void set_megatron_pipeline(ScenarioBuilder& builder) {
  constexpr std::int64_t most_layers = 10'000;
  Split split{number_of_layers(builder), builder.degree("pipeline_model_parallel_size")};
  if (split.layers < 1 || split.layers > most_layers) {
    if (builder.given("num_layers") || is_replaced(builder, "layers"))
      builder.mistake("num_layers",
                      fmt::format("expected between 1 and {} layers, found {}", most_layers, split.layers));
    return;
  }
  const auto first = builder.integer("decoder_first_pipeline_num_layers");
  const auto last = builder.integer("decoder_last_pipeline_num_layers");
  Counts counts;
  if (builder.given("pipeline_model_parallel_layout")) {
    counts = by_hand(builder, split);
  } else {
    split.virtual_stages = virtual_stages(builder, split.layers, split.pp);
    counts = first || last ? uneven(builder, split, first, last) : even(builder, split);
  }
  check_interleaving(builder, split);
  builder.axis("virtual_stages", split.virtual_stages);
  const bool whole = static_cast<std::int64_t>(counts.size()) == split.blocks() &&
                     std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == split.layers;
  if (whole) place_layers(builder, split, counts);
}

void set_megatron_buckets(ScenarioBuilder& builder, Imported& imported) {
  const auto number = builder.integer("ddp_num_buckets");
  if (!number) return;
  const Json* size = builder.value("ddp_bucket_size");
  if (*number < 1 || size != nullptr) {
    builder.mistake("ddp_num_buckets", size != nullptr
                                           ? "Cannot specify both num_buckets and bucket_size (Megatron's words)"
                                           : "expected at least one bucket");
    return;
  }
  // Without these two nothing depends on the buckets: one all-reduce is as good as several.
  if (!builder.boolean("use_distributed_optimizer", false) || !builder.boolean("overlap_grad_reduce", false)) return;
  const Scenario scenario = read_imported(imported, "scenario");
  std::int64_t parameters = 0;
  for (const LocalBuffer& buffer : scenario.schedule->model.local(0).buffers) parameters += buffer.numel;
  Json schedule = *imported.scenario.find("schedule");
  Json options = *schedule.find("options");
  options.set("ddp_bucket_size", json_integer(std::max<std::int64_t>(parameters / *number, 1)));
  schedule.set("options", options);
  imported.scenario.set("schedule", schedule);
  imported.assumed.push_back(
      fmt::format("ddp_bucket_size {}: the {} parameters of a rank of the first stage, divided by ddp_num_buckets {}.",
                  std::max<std::int64_t>(parameters / *number, 1), parameters, *number));
}

}  // namespace lockstep::importers
