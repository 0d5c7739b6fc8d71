// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX: megatron/neox_arguments. Its files are YAML maps, merged; a key may stand in one of them only.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

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
void set_mlp(Draft& draft) {
  const std::string activation = draft.word("activation", "gelu");
  const bool gated = activation.ends_with("glu") || activation == "bilinear";
  const std::int64_t hidden = draft.integer("hidden_size", 0);
  const std::int64_t multiple = draft.integer("mlp_multiple_of", 1);
  std::int64_t size = 4 * hidden;
  if (const auto factor = draft.number("expansion_factor"))
    size = (*factor * Rational(hidden)).floor().to_int64().value_or(0);
  if (const auto given = draft.integer("intermediate_size")) size = *given;
  if (multiple < 1 || size < 1) {
    if (multiple < 1) draft.mistake("mlp_multiple_of", "expected a number of at least 1");
    return;
  }
  if (gated) {
    draft.size("swiglu", Json::boolean(true));
    size = size * 2 / 3 / 2;
  }
  size = (size + multiple - 1) / multiple * multiple;
  if (gated || size != 4 * hidden) draft.size("ffn", json_integer(size));
}

/// As calculate_derived() of GPT-NeoX has it: what `precision` says, else which of the two dictionaries is on.
void set_precision(Draft& draft) {
  const bool bf16 = draft.boolean("bf16.enabled", false), fp16 = draft.boolean("fp16.enabled", false);
  if (bf16 && fp16) {
    draft.mistake("fp16.enabled",
                  "bf16.enabled is true as well, and DeepSpeed refuses that: bfloat16 and fp16 modes cannot be "
                  "simultaneously enabled");
  }
  const std::string type = draft.word("fp16.type", "fp16");
  const std::string precision = draft.word("precision", bf16 ? "bfloat16" : fp16 ? type : "fp32");
  if (precision != "fp32") draft.option("precision", Json::string(precision));
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
void check_attention(Draft& draft) {
  const Json* config = draft.value("attention_config");
  if (config == nullptr) return;
  const auto kinds = kinds_of_attention(*config);
  const std::vector<std::string>& known = draft.table().row("attention_config")->words;
  if (!kinds) {
    draft.mistake("attention_config", R"(expected a list such as [[["flash"], 12]])");
    return;
  }
  for (const std::string& kind : *kinds) {
    if (std::find(known.begin(), known.end(), kind) != known.end()) continue;
    const bool other = kind == "mamba" || kind == "rwkv" || kind == "gmlp" || kind == "amlp";
    draft.mistake(
        "attention_config",
        other ? fmt::format("lockstep has no model with {} layers; it knows the kinds {}", kind, fmt::join(known, ", "))
              : fmt::format("lockstep knows the kinds {}{}", fmt::join(known, ", "), did_you_mean(kind, known)));
    return;
  }
}

void set_gpt_neox_model(Draft& draft) {
  draft.preset("gpt");
  check_attention(draft);
  for (const std::string_view key : {"num_layers", "hidden_size", "num_attention_heads"}) {
    if (!draft.given(key)) draft.mistake("", fmt::format("{} is not given, and GPT-NeoX has no default for it", key));
  }
  if (const auto groups = draft.integer("num_kv_heads")) draft.size("query_groups", json_integer(*groups));
  const std::string positions = draft.word("pos_emb", "learned");
  if (positions == "learned") {
    draft.size("position_embedding", Json::string("learned"));
    if (const auto length = draft.integer("max_position_embeddings")) draft.size("positions", json_integer(*length));
  } else {
    draft.size("position_embedding", Json::string("rope"));
  }
  const bool attention_bias = draft.boolean("use_bias_in_attn_linear", true);
  const bool mlp_bias = draft.boolean("use_bias_in_mlp", true);
  if (attention_bias != mlp_bias) {
    draft.mistake("use_bias_in_mlp", "lockstep's presets have biases in attention and MLP, or in neither");
  }
  draft.size("linear_bias", Json::boolean(attention_bias));
  set_mlp(draft);
  if (const auto padded = draft.integer("padded_vocab_size")) {
    draft.size("vocab", json_integer(*padded));
    return;
  }
  draft.size("make_vocab_size_divisible_by", json_integer(draft.integer("make_vocab_size_divisible_by", 128)));
  draft.size("vocab", json_integer(50257));
  draft.assume("A vocabulary of 50257, that of GPT-2: the configuration does not say it; give --size vocab=N.");
}

}  // namespace

Imported import_gpt_neox(const ImportRequest& request, Diagnostics& diagnostics) {
  if (request.files.empty()) {
    has_one_file(request, "GPT-NeoX", diagnostics);
    return {};
  }
  Settings settings = read_configurations(request, diagnostics);
  if (!diagnostics.empty()) return {};
  Draft draft(request, "gpt-neox", std::move(settings), diagnostics);
  draft.also_knows("deepspeed");
  const std::int64_t stages = draft.integer("pipe_parallel_size", 0);
  draft.meaning("pipe_parallel_size",
                stages == 0 ? "no pipeline engine: layout.pp = 1" : "layout.pp, option pipe_parallel_size");
  const std::int64_t pp = stages == 0 ? 1 : draft.degree("pipe_parallel_size");
  const std::int64_t tp = draft.degree("model_parallel_size");
  const std::int64_t world = draft.world_size("global_num_gpus", draft.world_size("world_size"));
  const std::int64_t dp = draft.data_parallel_size(world, {{"model", tp}, {"pipe", pp}});
  draft.axis("tp", tp);
  draft.axis("dp", dp);
  draft.axis("pp", pp);
  if (draft.boolean("sequence_parallel", false)) {
    if (tp > 1) {
      draft.layout("sequence_parallel", Json::boolean(true));
    } else {
      draft.meaning("sequence_parallel", "nothing: there is no tensor parallelism");
    }
  }
  set_deepspeed_batch(draft, dp);
  check_deepspeed_batch_is_given(draft);
  set_precision(draft);
  set_gpt_neox_model(draft);
  std::string title = "Imported from a GPT-NeoX configuration";
  if (tp > 1 && draft.boolean("gpt_j_residual", false) && draft.boolean("use_bias_in_attn_linear", true)) {
    // Added by every rank, before both branches are reduced together.
    draft.assume(fmt::format(
        "With gpt_j_residual row-parallel biases (*.linear_proj.bias, *.linear_fc2.bias) are added {} times, once by "
        "each tensor-parallel rank: every copy is judged as a parameter of its own. As one shared parameter its "
        "gradient would be the sum over the copies, which GPT-NeoX does not form; \"partial\": [\"tp\"] in the "
        "scenario "
        "shows that (docs/frameworks/gpt-neox.md).",
        tp));
    title += ", each copy of a row-parallel bias a parameter of its own";
    if (draft.boolean("sequence_parallel", false)) {
      // On all tokens, before the reduce-scatter.
      Json whole = Json::object();
      whole.set("parameter", Json::array({Json::string("*.linear_proj.bias"), Json::string("*.linear_fc2.bias")}));
      whole.set("partial", Json::array({}));
      draft.edit(std::move(whole));
      draft.meaning("gpt_j_residual",
                    "row-parallel biases see all tokens: \"partial\" of *.linear_proj.bias, *.linear_fc2.bias");
    }
  }
  return draft.finish(title, "imported-gpt-neox");
}

}  // namespace lockstep::importers
