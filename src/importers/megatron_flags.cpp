// SPDX-License-Identifier: Apache-2.0
#include "src/importers/megatron_flags.h"

#include <fmt/format.h>

#include <memory>

#include "lockstep/rational.h"
#include "src/importers/key_table.h"
#include "src/importers/scenario_builder.h"
#include "src/importers/tables.h"

namespace lockstep::importers {

namespace {

using Takes = MegatronArgument::Takes;

Takes takes_of(const std::string& text) {
  if (text == "none") return Takes::none;
  if (text == "one") return Takes::one;
  if (text == "optional") return Takes::optional;
  if (text == "any") return Takes::any;
  if (text == "some") return Takes::some;
  throw InternalError("an argument of Megatron-LM takes " + text);
}

void add_table(const std::string& name, std::map<std::string, MegatronArgument, std::less<>>& flags) {
  Diagnostics diagnostics;
  const std::string& text = embedded_tables().at(name);
  const Json table = parse_json(std::make_shared<const Source>(Source{name + ".jsonc", text}), diagnostics);
  if (!diagnostics.empty()) throw InternalError(render(diagnostics.sorted().front()));
  for (const Json& row : table.find("arguments")->items()) {
    MegatronArgument argument;
    argument.key = row.find("key")->text();
    argument.takes = takes_of(row.find("takes")->text());
    if (argument.takes == Takes::none) argument.sets = row.find("sets")->as_boolean();
    argument.origin = row.find("from")->text();
    for (const Json& flag : row.find("flags")->items()) flags.emplace(flag.text(), argument);
  }
}

std::map<std::string, MegatronArgument, std::less<>> read_table() {
  std::map<std::string, MegatronArgument, std::less<>> flags;
  add_table("megatron_arguments", flags);
  add_table("megatron_forks", flags);  // where Megatron-LM has none of that name
  // Flags that older versions had, still common in scripts.
  for (const auto& [flag, key, sets] :
       {std::tuple("--use-mcore-models", "use_mcore_models", true),
        std::tuple("--use-legacy-models", "use_legacy_models", true),
        std::tuple("--disable-bias-linear", "add_bias_linear", false),
        std::tuple("--use-flashinfer-fused-rope", "use_flashinfer_fused_rope", true),
        std::tuple("--use-custom-fsdp", "use_custom_fsdp", true),
        std::tuple("--moe-use-legacy-grouped-gemm", "moe_use_legacy_grouped_gemm", true),
        std::tuple("--moe-extended-tp", "moe_extended_tp", true), std::tuple("--deterministic", "deterministic", true),
        std::tuple("--standalone-embedding-stage", "standalone_embedding_stage", true),
        std::tuple("--disable-gloo-process-groups", "enable_gloo_process_groups", false),
        std::tuple("--no-async-tensor-model-parallel-allreduce", "async_tensor_model_parallel_allreduce", false)}) {
    flags.emplace(flag, MegatronArgument{key, Takes::none, sets, ""});
  }
  flags.emplace("--norm-epsilon", MegatronArgument{"norm_epsilon", Takes::one, true, ""});
  return flags;
}

/// argparse takes "-1" for a value, as long as no flag looks like a number.
bool is_flag(const Word& word) {
  return word.text.size() > 1 && word.text[0] == '-' && !Rational::parse(word.text).has_value();
}

class FlagReader {
 public:
  FlagReader(const std::vector<Word>& words, bool ignore_unknown, std::vector<std::string>* broken,
             Diagnostics& diagnostics)
      : words_(words), ignore_unknown_(ignore_unknown), broken_(broken), diagnostics_(diagnostics) {}

  Settings read() {
    while (next_ < words_.size()) {
      const Word& word = words_[next_];
      if (word.text.empty() && word.unresolved.empty()) {
        ++next_;
      } else if (!is_flag(word)) {
        stray(word);
        ++next_;
      } else {
        read_flag();
      }
    }
    return std::move(settings_);
  }

 private:
  void stray(const Word& word) {
    if (ignore_unknown_) return;
    if (!word.unresolved.empty()) {
      diagnostics_.add(word.place, word.unresolved + "; it may hold arguments");
    } else {
      diagnostics_.add(word.place,
                       "expected an argument that begins with --, found something else: Megatron-LM's parser takes no "
                       "value here (its "
                       "switches have none), and another program's is not read");
    }
  }

  void read_flag() {
    const Word& word = words_[next_++];
    const std::size_t equals = word.text.find('=');
    const std::string flag = word.text.substr(0, equals);
    const auto found = megatron_flags().find(flag);
    // Dashes and all, so that --hidden_size, which argparse does not know, is not taken for the key hidden_size.
    Setting setting{flag, flag, word.place, Json(), "", ""};
    setting.place.end = setting.place.begin + std::min(setting.place.end - setting.place.begin, flag.size());
    if (found == megatron_flags().end()) {
      // Somebody's own argument: its values end where the next one begins.
      while (next_ < words_.size() && !is_flag(words_[next_])) ++next_;
      setting.value = Json::boolean(true, setting.place);  // that it is there is all that is known of it
      settings_.set(std::move(setting));
      return;
    }
    const MegatronArgument& argument = found->second;
    setting.key = argument.key;
    setting.origin = argument.origin;
    if (argument.takes == Takes::none) {
      if (equals != std::string::npos) diagnostics_.add(word.place, fmt::format("{} takes no value", flag));
      setting.value = Json::boolean(argument.sets, setting.place);
    } else if (equals != std::string::npos) {
      Place place = word.place;
      place.begin += std::min(place.end - place.begin, equals + 1);
      setting.value = Json::string(word.text.substr(equals + 1), place);
      setting.unresolved = word.unresolved;
    } else {
      read_values(argument, setting);
    }
    settings_.set(std::move(setting));
  }

  void read_values(const MegatronArgument& argument, Setting& setting) {
    std::vector<Json> values;
    // Megatron-DeepSpeed has a number of experts for each layer.
    const bool list = argument.takes == Takes::any || argument.takes == Takes::some;
    const bool several = list || argument.key == "num_experts";
    while (next_ < words_.size() && !is_flag(words_[next_]) && (several || values.empty())) {
      const Word& word = words_[next_++];
      if (!word.unresolved.empty() && setting.unresolved.empty()) setting.unresolved = word.unresolved;
      values.push_back(Json::string(word.text, word.place));
    }
    const bool lacks_one = values.empty() && (argument.takes == Takes::one || argument.takes == Takes::some);
    const bool has_more = !several && next_ < words_.size() && !is_flag(words_[next_]) && !words_[next_].text.empty();
    if ((lacks_one || has_more) && broken_ != nullptr && does_not_matter(argument)) {
      while (next_ < words_.size() && !is_flag(words_[next_])) ++next_;
      broken_->push_back(setting.written);
    } else if (lacks_one) {
      diagnostics_.add(setting.place, fmt::format("{} needs a value", setting.written));
    } else if (list || values.size() > 1) {
      setting.value = Json::array(std::move(values), setting.place);
    } else if (!values.empty()) {
      setting.value = values.front();
    }
  }

  static bool does_not_matter(const MegatronArgument& argument) {
    static const KeyTable table("megatron");
    return table.row(argument.key) == nullptr && !table.ignored(argument.key, argument.origin).empty();
  }

  const std::vector<Word>& words_;
  bool ignore_unknown_;
  std::vector<std::string>* broken_;
  Diagnostics& diagnostics_;
  std::size_t next_ = 0;
  Settings settings_;
};

}  // namespace

const std::map<std::string, MegatronArgument, std::less<>>& megatron_flags() {
  static const std::map<std::string, MegatronArgument, std::less<>> flags = read_table();
  return flags;
}

std::string megatron_origin(std::string_view key) {
  static const std::map<std::string, std::string, std::less<>> origins = [] {
    std::map<std::string, std::string, std::less<>> result;
    for (const auto& [flag, argument] : megatron_flags()) result.emplace(argument.key, argument.origin);
    return result;
  }();
  const auto found = origins.find(key);
  return found != origins.end() ? found->second : "";
}

Settings read_megatron_arguments(const std::vector<Word>& words, bool ignore_unknown, Diagnostics& diagnostics,
                                 std::vector<std::string>* broken) {
  return FlagReader(words, ignore_unknown, broken, diagnostics).read();
}

void add_megatron_flag(const std::string& flag, const Place& place, const Json& value, Settings& into,
                       Diagnostics& diagnostics) {
  const auto found = megatron_flags().find(flag);
  if (found == megatron_flags().end()) {
    into.set({flag, flag, place, value, "", ""});
    return;
  }
  const MegatronArgument& argument = found->second;
  Json meant = value;
  if (argument.takes == Takes::none) {
    // A flag with the value false is one that is not given.
    if (value.is_boolean() && !value.as_boolean()) return;
    if (!value.is_boolean() && !value.is_null()) {
      diagnostics.add(value.place(), fmt::format("{}: expected true or false, found {}", flag, kind_of(value)));
      return;
    }
    meant = Json::boolean(argument.sets, value.place());
  }
  into.set({argument.key, flag, place, meant, argument.origin, ""});
}

}  // namespace lockstep::importers
