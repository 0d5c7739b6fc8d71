// SPDX-License-Identifier: Apache-2.0
// The tables of keys against what they speak of: Megatron-LM's arguments, the frameworks' options, the models' sizes.
#include "src/importers/tables.h"

#include <memory>

#include "lockstep/scenario.h"
#include "src/importers/key_table.h"
#include "src/importers/megatron_flags.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

Json parsed(const std::string& name, const std::string& text) {
  Diagnostics diagnostics;
  Json json = parse_json(std::make_shared<const Source>(Source{name, text}), diagnostics);
  REQUIRE(diagnostics.empty());
  return json;
}

}  // namespace

TEST_CASE("every argument of Megatron-LM either matters or is known not to") {
  const importers::KeyTable table("megatron");
  REQUIRE(importers::megatron_flags().size() > 800);
  for (const auto& [flag, argument] : importers::megatron_flags()) {
    INFO(flag << " " << argument.key);
    CHECK((table.row(argument.key) != nullptr || !table.ignored(argument.key, argument.origin).empty()));
  }
}

TEST_CASE("arguments have the flags that Megatron-LM gives them") {
  CHECK(importers::megatron_flags().at("--tensor-model-parallel-size").key == "tensor_model_parallel_size");
  CHECK(importers::megatron_flags().at("--sequence-parallel").takes == importers::MegatronArgument::Takes::none);
  CHECK_FALSE(importers::megatron_flags().at("--disable-bias-linear").sets);
  CHECK(importers::megatron_flags().at("--disable-bias-linear").key == "add_bias_linear");
  CHECK(importers::megatron_flags().at("--rampup-batch-size").takes == importers::MegatronArgument::Takes::some);
  CHECK(importers::megatron_origin("save") == "CheckpointConfig");
}

TEST_CASE("tables name options of their framework and sizes of the models") {
  const Json sizes = *parsed("gpt", *builtin_model("gpt")).find("sizes");
  for (const auto& [name, text] : importers::embedded_tables()) {
    if (name == "megatron_arguments" || name == "megatron_forks") continue;
    INFO(name);
    const importers::KeyTable table(name);
    const std::string* framework = builtin_framework(table.framework());
    REQUIRE(framework != nullptr);
    const Json options = *parsed(table.framework(), *framework).find("options");
    for (const std::string& key : table.known()) {
      const importers::ConfigurationKey* row = table.row(key);
      if (row == nullptr) continue;
      INFO(key);
      if (row->goes_to == "option") CHECK(options.find(row->target) != nullptr);
      if (row->goes_to == "size") CHECK(sizes.find(row->target) != nullptr);
      CHECK((row->goes_to.empty() && row->meaning.empty() ? !row->because.empty() : true));
    }
  }
}

TEST_CASE("a pattern with stars stands for anything between") {
  CHECK(importers::glob_matches("moe_*_topk", "moe_router_topk"));
  CHECK(importers::glob_matches("*", ""));
  CHECK_FALSE(importers::glob_matches("moe_*", "more"));
  CHECK_FALSE(importers::glob_matches("lr", "lr_x"));
}
