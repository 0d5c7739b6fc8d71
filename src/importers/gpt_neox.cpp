// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX: megatron/neox_arguments. Its files are YAML maps, merged; a key may stand in one of them only.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "src/base/counted.h"
#include "src/importers/deepspeed.h"
#include "src/importers/formats.h"
#include "src/importers/request.h"
#include "src/importers/syntax.h"

namespace lockstep::importers {

namespace {

Settings read_configurations(const ImportRequest& request, Diagnostics& diagnostics) {
  Settings settings;
  std::map<std::string, std::string> files;  // of each key at the top
  for (const std::shared_ptr<const Source>& source : request.files) {
    const Json root = read_yaml(source, diagnostics);
    if (!is_configuration(root, source, diagnostics)) return settings;
    std::vector<Json::Member> members = root.members();
    for (Json::Member& member : members) {
      std::replace(member.key.begin(), member.key.end(), '-', '_');
      const auto [first, is_new] = files.emplace(member.key, source->name);
      if (!is_new) {
        diagnostics.add(
            member.key_place,
            fmt::format("the key \"{}\" is given in {} already, and GPT-NeoX refuses that", member.key, first->second));
      }
    }
    flatten(Json::object(std::move(members), root.place()), settings);
  }
  return settings;
}

/// The inner size of the MLP, as ParallelMLP computes it: gated ones get two thirds, half for the gate.
void set_mlp(ScenarioBuilder& builder) {
  const std::string activation = builder.word("activation", "gelu");
  const bool gated = activation.ends_with("glu") || activation == "bilinear";
  const std::int64_t hidden = builder.model_size("hidden", "hidden_size").value_or(0);
  const std::int64_t multiple = builder.integer("mlp_multiple_of", 1);
  std::int64_t size = 4 * hidden;
  if (const auto factor = builder.number("expansion_factor"))
    size = (*factor * Rational(hidden)).floor().to_int64().value_or(0);
  if (const auto given = builder.integer("intermediate_size")) size = *given;
  if (multiple < 1 || size < 1) {
    if (multiple < 1) builder.mistake("mlp_multiple_of", "expected a number of at least 1");
    return;
  }
  if (gated) {
    builder.size("swiglu", Json::boolean(true));
    size = size * 2 / 3 / 2;
  }
  size = (size + multiple - 1) / multiple * multiple;
  if (gated || size != 4 * hidden) builder.size("ffn", json_integer(size));
}

/// As calculate_derived() of GPT-NeoX has it: what `precision` says, else which of the two dictionaries is on.
void set_precision(ScenarioBuilder& builder) {
  const bool bf16 = builder.boolean("bf16.enabled", false), fp16 = builder.boolean("fp16.enabled", false);
  if (bf16 && fp16) {
    builder.mistake("fp16.enabled",
                    "bf16.enabled is true as well, and DeepSpeed refuses that: bfloat16 and fp16 modes cannot be "
                    "simultaneously enabled");
  }
  const std::string type = builder.word("fp16.type", "fp16");
  const std::string precision = builder.word("precision", bf16 ? "bfloat16" : fp16 ? type : "fp32");
  if (precision != "fp32") builder.option("precision", Json::string(precision));
}

/// The kinds in [[["flash", "local"], 6], [["mamba"], "all"]], or in a list of them alone; nothing where it is neither.
std::optional<std::vector<std::string>> kinds_of_attention(const Json& config) {
  std::vector<std::string> kinds;
  const auto add = [&](const Json& list) {
    if (!list.is_array()) return false;
    for (const Json& kind : list.items()) {
      if (!kind.is_string()) return false;
      kinds.push_back(kind.text());
    }
    return true;
  };
  if (!config.is_array()) return std::nullopt;
  if (add(config)) return kinds;
  kinds.clear();
  for (const Json& entry : config.items()) {
    if (!entry.is_array() || entry.items().size() != 2 || !add(entry.items().front())) return std::nullopt;
  }
  return kinds;
}

/// Mamba, RWKV and gMLP stand among the kinds of attention, but have parameters of their own.
void check_attention(ScenarioBuilder& builder) {
  const Json* config = builder.value("attention_config");
  if (config == nullptr) return;
  const auto kinds = kinds_of_attention(*config);
  const std::vector<std::string>& known = builder.table().row("attention_config")->words;
  if (!kinds) {
    builder.mistake("attention_config", R"(expected a list such as [[["flash"], 12]])");
    return;
  }
  for (const std::string& kind : *kinds) {
    if (std::find(known.begin(), known.end(), kind) != known.end()) continue;
    const bool other = kind == "mamba" || kind == "rwkv" || kind == "gmlp" || kind == "amlp";
    builder.mistake(
        "attention_config",
        other ? fmt::format("lockstep has no model with {} layers; it knows the kinds {}", kind, fmt::join(known, ", "))
              : fmt::format("lockstep knows the kinds {}{}", fmt::join(known, ", "), did_you_mean(kind, known)));
    return;
  }
}

void set_gpt_neox_model(ScenarioBuilder& builder) {
  builder.preset("gpt");
  check_attention(builder);
  for (const std::string_view key : {"num_layers", "hidden_size", "num_attention_heads"}) {
    if (!builder.given(key))
      builder.mistake("", fmt::format("{} is not given, and GPT-NeoX has no default for it", key));
  }
  if (const auto groups = builder.integer("num_kv_heads")) builder.size("query_groups", json_integer(*groups));
  const std::string positions = builder.word("pos_emb", "learned");
  if (positions == "learned") {
    builder.size("position_embedding", Json::string("learned"));
    if (const auto length = builder.integer("max_position_embeddings"))
      builder.size("positions", json_integer(*length));
  } else {
    builder.size("position_embedding", Json::string("rope"));
  }
  const bool attention_bias = builder.boolean("use_bias_in_attn_linear", true);
  const bool mlp_bias = builder.boolean("use_bias_in_mlp", true);
  if (attention_bias && !mlp_bias)
    builder.mistake("use_bias_in_mlp", "lockstep's presets have no biases in attention alone");
  builder.size("linear_bias", Json::boolean(mlp_bias));
  if (mlp_bias && !attention_bias) builder.size("attention_bias", Json::boolean(false));
  set_mlp(builder);
  if (const auto padded = builder.integer("padded_vocab_size")) {
    builder.size("vocab", json_integer(*padded));
    return;
  }
  builder.size("make_vocab_size_divisible_by", json_integer(builder.integer("make_vocab_size_divisible_by", 128)));
  builder.size("vocab", json_integer(50257));
  if (!builder.model_size("vocab", "padded_vocab_size"))
    builder.assume("A vocabulary of 50257, that of GPT-2: the configuration does not say it; give --size vocab=N.");
}

/// Where the file says the batch in full, it says how many ranks share it; 0: it does not.
std::int64_t world_of_batch(ScenarioBuilder& builder, const ScenarioBuilder::Degrees& degrees) {
  const auto all = builder.integer("train_batch_size"), micro = builder.integer("train_micro_batch_size_per_gpu"),
             steps = builder.integer("gradient_accumulation_steps");
  const std::int64_t model = builder.product(degrees);
  if (!all || !micro || !steps || *all < 1 || *micro < 1 || *steps < 1 || model == 0) return 0;
  constexpr std::int64_t most = std::int64_t{1} << 20;
  if (*micro > most || *steps > most || *all % (*micro * *steps) != 0) return 0;
  const std::int64_t dp = *all / (*micro * *steps);
  if (dp > largest_import_size / model) return 0;
  const auto nodes = builder.integer("num_nodes"), each = builder.integer("num_gpus");
  if (nodes && each && *nodes > 0 && *each > 0 && *nodes <= most && *each <= most && *nodes * *each < dp * model) {
    builder.mistake("num_gpus",
                    fmt::format("num_nodes {} × num_gpus {} are {}, and train_batch_size {} / "
                                "(train_micro_batch_size_per_gpu {} × gradient_accumulation_steps {}) is the batch of "
                                "{}; give --world-size N",
                                *nodes, *each, counted(*nodes * *each, "rank"), *all, *micro, *steps, dp * model));
    return dp * model;
  }
  if (builder.request().micro_batches > 0) {
    for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"})
      builder.meaning(key, "the number of ranks alone: --micro-batches is given");
  }
  builder.assume(
      fmt::format("{}: train_batch_size {} / (train_micro_batch_size_per_gpu {} × gradient_accumulation_steps {}) is "
                  "data-parallel size {}, times {}.",
                  counted(dp * model, "rank"), *all, *micro, *steps, dp, text_of(degrees)));
  return dp * model;
}

}  // namespace

Imported import_gpt_neox(const ImportRequest& request, Diagnostics& diagnostics) {
  if (request.files.empty()) {
    has_one_file(request, "GPT-NeoX", diagnostics);
    return {};
  }
  Settings settings = read_configurations(request, diagnostics);
  if (!diagnostics.empty()) return {};
  ScenarioBuilder builder(request, "gpt-neox", std::move(settings), diagnostics);
  builder.also_knows("deepspeed");
  const std::int64_t stages = builder.integer("pipe_parallel_size", 0);
  builder.meaning("pipe_parallel_size",
                  stages == 0 ? "no pipeline engine: layout.pp = 1" : "layout.pp, option pipe_parallel_size");
  const std::int64_t pp = stages == 0 ? 1 : builder.degree("pipe_parallel_size");
  const std::int64_t tp = builder.degree("model_parallel_size");
  std::int64_t world = builder.world_size(builder.given("global_num_gpus") ? "global_num_gpus" : "world_size");
  if (world == 0) world = world_of_batch(builder, {{"model", tp}, {"pipe", pp}});
  const std::int64_t dp = builder.data_parallel_size(world, {{"model", tp}, {"pipe", pp}});
  builder.axis("tp", tp);
  builder.axis("dp", dp);
  builder.axis("pp", pp);
  if (builder.boolean("sequence_parallel", false)) {
    if (tp > 1) {
      builder.layout("sequence_parallel", Json::boolean(true));
    } else {
      builder.meaning("sequence_parallel", "nothing: there is no tensor parallelism");
    }
  }
  set_deepspeed_batch(builder, dp);
  check_deepspeed_batch_is_given(builder);
  set_precision(builder);
  set_gpt_neox_model(builder);
  std::string title = "Imported from a GPT-NeoX configuration";
  if (tp > 1 && builder.boolean("gpt_j_residual", false) && builder.boolean("use_bias_in_attn_linear", true)) {
    // Added by every rank, before both branches are reduced together.
    builder.assume(fmt::format(
        "With gpt_j_residual row-parallel biases (*.linear_proj.bias, *.linear_fc2.bias) are added {} times, once by "
        "each tensor-parallel rank: every copy is judged as a parameter of its own. As one shared parameter its "
        "gradient would be the sum over the copies, which GPT-NeoX does not form; \"partial\": [\"tp\"] in the "
        "scenario "
        "shows that (docs/frameworks/gpt-neox.md).",
        tp));
    title += ", each copy of a row-parallel bias a parameter of its own";
    if (builder.boolean("sequence_parallel", false)) {
      // On all tokens, before the reduce-scatter.
      Json whole = Json::object();
      whole.set("parameter", Json::array({Json::string("*.linear_proj.bias"), Json::string("*.linear_fc2.bias")}));
      whole.set("partial", Json::array({}));
      builder.edit(std::move(whole));
      builder.meaning("gpt_j_residual",
                      "row-parallel biases see all tokens: \"partial\" of *.linear_proj.bias, *.linear_fc2.bias");
    }
  }
  return builder.finish(title, "imported-gpt-neox");
}

}  // namespace lockstep::importers
