// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/recognize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/scenario/value_type.h"
#include "src/transformer/data.h"
#include "src/transformer/shards.h"

namespace lockstep::transformer {

namespace {

[[noreturn]] void refuse(const Place& place, const std::string& why) {
  throw InputError({{place, "the transformer engine cannot run this model: " + why}});
}

class Sizes {
 public:
  explicit Sizes(const Preset& preset) : preset_(preset) {}
  int number(const std::string& name) const {
    const auto found = preset_.sizes.find(name);
    const std::optional<std::int64_t> value =
        found == preset_.sizes.end() ? std::nullopt : scenario::whole_number(found->second);
    if (!value || *value < 0 || *value > 1'000'000)
      refuse(preset_.place, fmt::format("its size \"{}\" is missing or out of range", name));
    return static_cast<int>(*value);
  }
  double real(const std::string& name) const {
    const auto found = preset_.sizes.find(name);
    const std::optional<Rational> value =
        found == preset_.sizes.end() ? std::nullopt : Rational::parse(found->second.text());
    // Far beyond what means something, and far from what a double cannot hold.
    const Rational largest(1'000'000'000);
    if (!value || *value < Rational(0) || *value > largest || (!value->is_zero() && *value < Rational(1) / largest))
      refuse(preset_.place, fmt::format("its size \"{}\" is no number from 1e-9 to 1e9, and not 0", name));
    return to_double(*value);
  }
  bool flag(const std::string& name) const {
    const auto found = preset_.sizes.find(name);
    return found != preset_.sizes.end() && found->second.is_boolean() && found->second.as_boolean();
  }
  std::string text(const std::string& name) const {
    const auto found = preset_.sizes.find(name);
    return found != preset_.sizes.end() && found->second.is_string() ? found->second.text() : "";
  }

 private:
  const Preset& preset_;
};

ContextExchange read_exchange(const Sizes& sizes) {
  const std::string name = sizes.text("cp_comm_type");
  if (name == "p2p") return ContextExchange::ring;
  return name == "a2a" ? ContextExchange::all_to_all : ContextExchange::all_gather;
}

Config read_sizes(const Sizes& sizes, int tp) {
  const auto or_else = [](int value, int fallback) { return value > 0 ? value : fallback; };
  Config config;
  config.layers = sizes.number("layers");
  config.hidden = sizes.number("hidden");
  config.heads = or_else(sizes.number("heads"), 1);
  config.kv_heads = or_else(sizes.number("query_groups"), config.heads);
  config.head_size = or_else(sizes.number("head_dim"), config.hidden / config.heads);
  config.ffn = or_else(sizes.number("ffn"), 4 * config.hidden);
  const int unit = std::max(1, sizes.number("make_vocab_size_divisible_by") * tp);
  config.vocab = (sizes.number("vocab") + unit - 1) / unit * unit;
  config.positions = sizes.number("positions");
  config.learned_positions = sizes.text("position_embedding") == "learned";
  config.layer_norm = sizes.text("normalization") == "LayerNorm";
  config.linear_bias = sizes.flag("linear_bias");
  config.qkv_bias = sizes.flag("qkv_bias");
  config.qk_norm = sizes.flag("qk_layernorm");
  config.swiglu = sizes.flag("swiglu");
  config.tied = sizes.flag("tied_embeddings");
  config.experts = sizes.number("experts");
  config.top_k = config.experts == 1 ? 1 : sizes.number("moe_router_topk");
  config.auxiliary_loss = sizes.real("moe_aux_loss_coeff");
  config.pre_softmax = sizes.flag("moe_router_pre_softmax");
  config.capacity_factor = sizes.real("moe_expert_capacity_factor");
  config.drop_by_position = sizes.text("moe_token_drop_policy") == "position";
  config.moe_ffn = or_else(sizes.number("moe_ffn"), config.ffn);
  config.moe_layer_frequency = or_else(sizes.number("moe_layer_frequency"), 1);
  config.first_dense_layers = sizes.number("first_dense_layers");
  config.shared_expert_ffn = sizes.number("shared_expert_ffn");
  config.shared_expert_gate = sizes.flag("shared_expert_gate");
  config.context_exchange = read_exchange(sizes);
  config.mtp_layers = sizes.number("mtp_num_layers");
  return config;
}

void check_sizes(const Config& config, const Sizes& sizes, const Layout& layout, const Place& place) {
  if (sizes.flag("multi_latent_attention")) refuse(place, "it has no multi-latent attention");
  if (sizes.number("conditional_embedder") > 0) refuse(place, "it has no conditional embedder");
  if (config.heads % config.kv_heads != 0)
    refuse(place,
           fmt::format("{} not divide into {}", counted(config.heads, "head") + (config.heads == 1 ? " does" : " do"),
                       counted(config.kv_heads, "group")));
  if (!config.learned_positions && config.head_size % 2 != 0)
    refuse(place, fmt::format("rotary positions turn pairs, and a head has {}", counted(config.head_size, "element")));
  const auto divide = [&](int count, const char* what, int parts, const char* axes) {
    if (count % parts == 0) return;
    refuse(place, fmt::format("{} {} do not divide by {} = {}", count, what, axes, parts));
  };
  divide(config.kv_heads, "key-value heads", layout.tp * layout.sp, "tp * sp");
  if (config.context_exchange == ContextExchange::all_to_all)
    divide(config.kv_heads, "key-value heads", layout.tp * layout.sp * layout.cp, "tp * sp * cp (a2a)");
  if (config.mtp_layers > 0) divide(config.hidden, "elements of the hidden states", layout.tp, "tp");
  divide(config.ffn, "elements of the MLP", layout.tp, "tp");
  divide(config.vocab, "words", layout.tp, "tp");
  divide(config.shared_expert_ffn, "elements of the shared experts", layout.tp, "tp");
  if (config.experts > 0) {
    if (config.top_k < 1 || config.top_k > config.experts)
      refuse(place,
             fmt::format("a token cannot visit {} of {} experts (moe_router_topk)", config.top_k, config.experts));
    if (config.top_k == 1 && config.experts > 1 && !config.pre_softmax)
      refuse(place,
             "a softmax over the one expert that is chosen has no gradient; Megatron asks for "
             "moe_router_pre_softmax where moe_router_topk is 1");
    divide(config.experts, "experts", layout.ep, "ep");
    divide(config.moe_ffn, "elements of an expert", layout.etp, "etp");
  }
}

/// That a rank's buffers are what the engine holds, all of it, but for parameters that never take part.
void check_rank(const Config& config, const Schedule& schedule, int rank, const Place& place) {
  const Model& model = schedule.model;
  const std::map<std::string, Home> homes = local_parameters(config, schedule.mesh, rank);
  std::set<std::string_view> held;
  for (const LocalBuffer& buffer : model.local(rank).buffers) {
    const Home* first = nullptr;
    for (const int index : buffer.parameters) {
      const Parameter& parameter = model.parameters()[at(index)];
      held.insert(parameter.name);
      if (parameter.micro_batches && parameter.micro_batches->empty()) continue;
      if (parameter.micro_batches || !parameter.only.empty())
        refuse(parameter.place,
               fmt::format("\"{}\" takes part in every micro-batch on every rank that holds it", parameter.name));
      for (const std::string& use : parameter.uses) {
        const std::vector<std::string> known = config.uses();
        if (std::find(known.begin(), known.end(), use) == known.end())
          refuse(parameter.place, fmt::format("\"{}\" has the use \"{}\", and its losses are {}", parameter.name, use,
                                              fmt::join(known, ", ")));
      }
      const auto found = homes.find(parameter.name);
      if (found == homes.end())
        refuse(parameter.place, fmt::format("it has no parameter \"{}\" on rank {}", parameter.name, rank));
      const Home& home = found->second;
      const std::vector<Interval>& dims = model.pieces(buffer.logical)[at(buffer.piece)].dims;
      const std::int64_t rows = dims.size() == 2 ? dims[0].size() : 1;
      if (home.rows != rows || home.rows * home.columns != buffer.numel)
        refuse(parameter.place, fmt::format("rank {} holds {} x {} elements of \"{}\" in it, and {} here, {} x {}",
                                            rank, home.rows, home.columns, parameter.name, buffer.numel, rows,
                                            buffer.numel / std::max<std::int64_t>(rows, 1)));
      if (first != nullptr && first->tensor != home.tensor)
        refuse(parameter.place, fmt::format("\"{}\" is not tied to another parameter in it", parameter.name));
      if (first == nullptr) first = &home;
    }
  }
  for (const auto& [name, home] : homes) {
    if (held.count(name) == 0)
      refuse(place, fmt::format("it has a parameter \"{}\" on rank {}, and the scenario has none", name, rank));
  }
}

}  // namespace

Config recognize(const Scenario& scenario) {
  if (!scenario.layout.any.empty())
    refuse(scenario.document.place(), "an axis of size \"any\" has no number of ranks to run it on");
  if (scenario.schedule == nullptr)
    refuse(scenario.document.place(), "with any number of micro-batches there is no batch to run; give a number");
  const Schedule& schedule = *scenario.schedule;
  if (!scenario.preset || scenario.preset->family != "gpt") {
    const Json* model = scenario.document.find("model");
    refuse(
        model != nullptr ? model->place() : scenario.document.place(),
        "it knows the presets that stand on \"gpt\", with their sizes, and no list of parameters; name a \"preset\", "
        "or use --engine symbolic,host");
  }
  const Place& place = scenario.preset->place;
  const Sizes sizes(*scenario.preset);
  const Config config = read_sizes(sizes, scenario.layout.tp);
  check_sizes(config, sizes, scenario.layout, place);
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) check_rank(config, schedule, rank, place);
  // One device has one tensor where the scenario has one logical parameter.
  for (const Logical& logical : schedule.model.logicals()) {
    const Parameter& first = schedule.model.parameters()[at(logical.parameters.front())];
    if (schedule.model.copies(logical.original).size() > 1)
      refuse(first.place,
             fmt::format("\"{}\" has several copies, a lost tie, and in it what is tied is one tensor", logical.tied));
    if (logical.name != "embedding.word_embeddings.weight") continue;
    const bool tied = std::any_of(logical.parameters.begin(), logical.parameters.end(), [&](int parameter) {
      return schedule.model.parameters()[at(parameter)].name == "output_layer.weight";
    });
    if (tied != config.tied)
      refuse(place, "the output layer is tied to the word embedding in one of the two, preset and parameters");
  }
  return config;
}

}  // namespace lockstep::transformer
