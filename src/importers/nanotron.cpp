// SPDX-License-Identifier: Apache-2.0
// nanotron: src/nanotron/config. Sequence parallelism is a tp_mode.
#include <fmt/format.h>

#include "src/base/counted.h"
#include "src/importers/formats.h"
#include "src/importers/request.h"
#include "src/importers/scenario_builder.h"
#include "src/importers/syntax.h"

namespace lockstep::importers {

namespace {

/// A degree that nanotron has no default for.
std::int64_t required(ScenarioBuilder& builder, std::string_view key) {
  if (!builder.given(key)) builder.mistake("", fmt::format("{} is not given, and nanotron has no default for it", key));
  return builder.degree(key);
}

}  // namespace

Imported import_nanotron(const ImportRequest& request, Diagnostics& diagnostics) {
  if (!has_one_file(request, "nanotron", diagnostics)) return {};
  const Json root = read_yaml(request.files.front(), diagnostics);
  if (!is_configuration(root, request.files.front(), diagnostics)) return {};
  Settings settings;
  flatten(root, settings);
  ScenarioBuilder builder(request, "nanotron", std::move(settings), diagnostics);
  const std::int64_t tp = required(builder, "parallelism.tp"), pp = required(builder, "parallelism.pp"),
                     dp = required(builder, "parallelism.dp"), cp = builder.degree("parallelism.context_parallel_size");
  const ScenarioBuilder::Degrees degrees = {{"tp", tp}, {"pp", pp}, {"dp", dp}, {"cp", cp}};
  const std::int64_t ranks = builder.product(degrees);
  if (request.world > 0 && ranks > 0 && ranks != request.world) {
    builder.mistake("", fmt::format("--world-size is {}, but the configuration has {} ({}); leave --world-size out",
                                    request.world, counted(ranks, "rank"), text_of(degrees)));
  }
  builder.axis("tp", tp);
  builder.axis("cp", cp);
  builder.axis("dp", dp);
  builder.axis("pp", pp);
  builder.axis("ep", builder.degree("parallelism.expert_parallel_size"));
  builder.micro_batches(builder.degree("tokens.batch_accumulation_per_replica"));
  builder.preset("llama");
  if (!builder.given("model.model_config.num_key_value_heads")) {
    // nanotron takes as many as there are heads, the preset those of Llama 3.
    builder.size("query_groups", json_integer(builder.integer("model.model_config.num_attention_heads", 32)));
  }
  const std::int64_t unit = builder.integer("model.make_vocab_size_divisible_by", 1);
  // Padded to a multiple of unit * tp (helpers.py).
  const bool is_padded = unit > 1 || builder.integer("model.model_config.vocab_size", tp) % tp != 0;
  if (is_padded) builder.size("make_vocab_size_divisible_by", json_integer(unit));
  if (builder.value("optimizer.clip_grad") == nullptr) builder.option("clip_grad", json_integer(0));
  return builder.finish("Imported from a nanotron configuration", "imported-nanotron");
}

}  // namespace lockstep::importers
