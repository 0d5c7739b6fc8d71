// SPDX-License-Identifier: Apache-2.0
#include "src/importers/megatron_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/counted.h"
#include "src/importers/megatron_pipeline.h"

namespace lockstep::importers {

namespace {

constexpr std::size_t most_layers = 10'000;

/// Python's "([0]*3+[1]*58)" as 0 and 1, and nothing else: sums, products with a number and brackets of lists.
class PatternReader {
 public:
  explicit PatternReader(std::string_view text) : text_(text) {}

  std::optional<std::vector<int>> read() {
    auto list = sum(0);
    skip_space();
    if (next_ != text_.size()) return std::nullopt;
    return list;
  }

 private:
  using List = std::optional<std::vector<int>>;

  void skip_space() {
    while (next_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[next_])) != 0) ++next_;
  }
  bool take(char c) {
    skip_space();
    if (next_ >= text_.size() || text_[next_] != c) return false;
    ++next_;
    return true;
  }
  std::optional<std::size_t> number() {
    skip_space();
    std::size_t value = 0, digits = 0;
    for (; next_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[next_])) != 0 && digits < 6;
         ++digits) {
      value = value * 10 + static_cast<std::size_t>(text_[next_++] - '0');
    }
    return digits > 0 ? std::optional(value) : std::nullopt;
  }
  List sum(int depth) {
    List list = product(depth);
    while (list && take('+')) {
      const List more = product(depth);
      if (!more || list->size() + more->size() > most_layers) return std::nullopt;
      list->insert(list->end(), more->begin(), more->end());
    }
    return list;
  }
  List product(int depth) {
    List list = item(depth);
    while (list && take('*')) {
      const auto times = number();
      if (!times || *times * std::max<std::size_t>(list->size(), 1) > most_layers) return std::nullopt;
      std::vector<int> result;
      for (std::size_t i = 0; i < *times; ++i) result.insert(result.end(), list->begin(), list->end());
      list = std::move(result);
    }
    return list;
  }
  List item(int depth) {
    if (depth > 20) return std::nullopt;
    if (take('(')) {
      List list = sum(depth + 1);
      return take(')') ? list : std::nullopt;
    }
    if (!take('[')) return std::nullopt;
    std::vector<int> list;
    while (!take(']')) {
      const auto value = number();
      if (!value || *value > 1 || list.size() > most_layers) return std::nullopt;
      list.push_back(static_cast<int>(*value));
      if (!take(',') && (skip_space(), next_ < text_.size() && text_[next_] != ']')) return std::nullopt;
    }
    return list;
  }

  std::string_view text_;
  std::size_t next_ = 0;
};

/// (dense layers at the start, every how many layers experts follow) of a list, where it has that form.
std::optional<std::pair<std::int64_t, std::int64_t>> regular(const std::vector<int>& layers) {
  const std::size_t size = layers.size();
  for (std::size_t dense = 0; dense < size; ++dense) {
    for (std::size_t every = 1; every <= size; ++every) {
      bool same = true;
      for (std::size_t i = 0; same && i < size; ++i) same = (layers[i] == 1) == (i >= dense && i % every == 0);
      if (same) return std::pair(static_cast<std::int64_t>(dense), static_cast<std::int64_t>(every));
    }
    if (layers[dense] == 1) break;  // the dense ones end here at the latest
  }
  return std::nullopt;
}

/// Norms between the down and up projections exist with qk_layernorm alone. Those of Transformer Engine, Megatron's
/// default, are parts of the up projections, so that no q_layernorm or k_layernorm is found by its name; the local ones
/// are, and summed over tp even where they are complete.
void set_latent_norms(ScenarioBuilder& builder) {
  const bool norms = builder.boolean("qk_layernorm", false);
  if (!norms) builder.size("latent_norms", Json::boolean(false));
  const Json* given = builder.value("transformer_impl");
  const bool local = given != nullptr && given->is_string() && same_word(given->text(), "local");
  const bool cut = builder.degree("tensor_model_parallel_size") > 1 && !builder.boolean("sequence_parallel", false);
  if (cut && !(norms && local)) builder.option("qk_layernorm", Json::boolean(false));
}

}  // namespace

void set_megatron_vocabulary(ScenarioBuilder& builder) {
  const auto padded = builder.integer("padded_vocab_size");
  const auto vocabulary = builder.integer("vocab_size");
  const std::int64_t unit = builder.integer("make_vocab_size_divisible_by", 128);
  const Json* tokenizer = builder.value("tokenizer_type");
  if (padded && *padded > 0) {
    builder.size("vocab", json_integer(*padded));
    if (vocabulary) builder.meaning("vocab_size", "nothing: padded_vocab_size is given");
    builder.meaning("make_vocab_size_divisible_by", "nothing: padded_vocab_size is given");
    builder.meaning("tokenizer_type", "nothing: padded_vocab_size is given");
    return;
  }
  builder.size("make_vocab_size_divisible_by", json_integer(unit));
  if (vocabulary) {
    builder.size("vocab", json_integer(*vocabulary));
    builder.meaning("tokenizer_type", "nothing: vocab_size is given");
    return;
  }
  constexpr int gpt2_vocabulary = 50257;
  builder.size("vocab", json_integer(gpt2_vocabulary));
  if (is_replaced(builder, "vocab")) {
    builder.meaning("tokenizer_type", "nothing: --size vocab is given");
    return;
  }
  const bool gpt2 = tokenizer != nullptr && tokenizer->is_string() && tokenizer->text() == "GPT2BPETokenizer";
  if (gpt2) {
    builder.meaning("tokenizer_type", "model.vocab = 50257, that of GPT-2");
    return;
  }
  builder.meaning("tokenizer_type", "nothing: its vocabulary is not known here");
  builder.assume("A vocabulary of 50257, that of GPT-2: the configuration does not say it; give --size vocab=N.");
}

void set_megatron_experts(ScenarioBuilder& builder, std::int64_t tp) {
  const Json* given = builder.value("moe_layer_freq");
  const std::int64_t experts = builder.integer("num_experts", 0);
  const std::int64_t ep = builder.degree("expert_model_parallel_size");
  if (experts == 0) {
    if (ep > 1) {
      builder.mistake("expert_model_parallel_size",
                      "num_experts must be non None to use expert model parallelism (Megatron's words)");
    }
    return;
  }
  if (experts < 1 || experts % ep != 0) {
    builder.mistake("num_experts", fmt::format("Number of experts should be a multiple of expert model parallel_size "
                                               "(Megatron's words); found {} for {}",
                                               counted(experts, "expert"), counted(ep, "rank")));
  }
  if (builder.boolean("add_bias_linear", true) && !is_replaced(builder, "linear_bias")) {
    if (builder.has_stand_in()) {
      builder.stands_in_for("the biases of experts");
      builder.size("linear_bias", Json::boolean(false));
    } else {
      builder.mistake("num_experts",
                      "lockstep's presets have experts without biases only; give --size linear_bias=false to leave out "
                      "all biases");
    }
  }
  if (tp > 1 && !builder.boolean("sequence_parallel", false)) {
    builder.mistake("num_experts", "Megatron trains experts with tensor parallelism only with --sequence-parallel");
  }
  std::vector<int> layers;
  if (given == nullptr) return;
  const bool is_text = given->is_string() || given->is_number();
  if (given->is_array()) {
    for (const Json& item : given->items()) {
      const bool one = (item.is_number() || item.is_string()) && item.text() == "1";
      layers.push_back(one ? 1 : 0);
    }
  } else if (const auto every = is_text ? Rational::parse(given->text()) : std::nullopt) {
    builder.size("moe_layer_frequency", json_number(*every));
    return;
  } else if (auto list = is_text ? PatternReader(given->text()).read() : std::nullopt) {
    layers = std::move(*list);
  } else {
    builder.mistake("moe_layer_freq", "expected a number, or a list such as ([0]*3+[1]*58)");
    return;
  }
  const auto found = regular(layers);
  if (!found) {
    builder.mistake(
        "moe_layer_freq",
        "lockstep's presets know dense layers at the start, then experts in every n-th layer; this list is different");
    return;
  }
  if (found->first > 0) builder.size("first_dense_layers", json_integer(found->first));
  if (found->second > 1) builder.size("moe_layer_frequency", json_integer(found->second));
}

void set_megatron_latent_attention(ScenarioBuilder& builder) {
  if (!builder.boolean("multi_latent_attention", false)) {
    for (const auto& [key, otherwise] :
         {std::pair("q_lora_rank", 0), std::pair("kv_lora_rank", 0), std::pair("qk_head_dim", 0),
          std::pair("qk_pos_emb_head_dim", 0), std::pair("v_head_dim", 0)}) {
      builder.integer(key, otherwise);
      builder.meaning(key, "nothing: it needs --multi-latent-attention");
    }
    builder.meaning("transformer_impl", "nothing: it changes no name of a norm");
    return;
  }
  set_latent_norms(builder);
  // Without a rank the queries have one projection (core/transformer/multi_latent_attention.py, linear_q_proj).
  builder.size("q_lora_rank", json_integer(builder.integer("q_lora_rank", 0)));
  builder.size("kv_lora_rank", json_integer(builder.integer("kv_lora_rank", 32)));
  builder.size("qk_head_dim", json_integer(builder.integer("qk_head_dim", 128)));
  builder.size("qk_pos_emb_head_dim", json_integer(builder.integer("qk_pos_emb_head_dim", 64)));
  builder.size("v_head_dim", json_integer(builder.integer("v_head_dim", 128)));
}

void set_megatron_multi_token_prediction(ScenarioBuilder& builder) {
  const std::int64_t depths = builder.integer("mtp_num_layers", 0);
  if (depths == 0) {
    for (const char* key :
         {"mtp_num_layers", "mtp_loss_scaling_factor", "mtp_use_repeated_layer", "mtp_detach_heads", "mtp_hsm"})
      builder.meaning(key, "nothing: there is no multi-token prediction");
    return;
  }
  const std::string positions = builder.word("position_embedding_type", "learned_absolute");
  if (positions == "relative" || positions == "yarn") {
    builder.mistake(
        "position_embedding_type",
        fmt::format("Multi-Token Prediction (MTP) is not supported with '{}' position embedding type (Megatron's "
                    "words)",
                    positions));
  }
  if (depths > 1 && builder.boolean("mtp_use_repeated_layer", false)) {
    builder.mistake("mtp_use_repeated_layer", "lockstep's presets give every depth a layer of its own");
  }
  if (builder.boolean("mtp_detach_heads", false)) {
    builder.mistake("mtp_detach_heads", "lockstep's presets let the loss of every depth reach the decoder");
  }
  if (depths > 1 && builder.boolean("mtp_hsm", false)) {
    builder.mistake("mtp_hsm", "lockstep's presets do not mix the hidden states of depths");
  }
  builder.size("mtp_num_layers", json_integer(depths));
  builder.option("mtp_num_layers", json_integer(depths));
  if (const auto factor = builder.number("mtp_loss_scaling_factor")) {
    builder.option("mtp_loss_scaling_factor", json_number(*factor));
  }
}

}  // namespace lockstep::importers
