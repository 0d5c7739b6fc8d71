// SPDX-License-Identifier: Apache-2.0
// nanotron: src/nanotron/config. Sequence parallelism is a tp_mode.
#include <fmt/format.h>

#include "src/base/counted.h"
#include "src/importers/draft.h"
#include "src/importers/formats.h"
#include "src/importers/request.h"
#include "src/importers/syntax.h"

namespace lockstep::importers {

namespace {

/// A degree that nanotron has no default for.
std::int64_t required(Draft& draft, std::string_view key) {
  if (!draft.given(key)) draft.mistake("", fmt::format("{} is not given, and nanotron has no default for it", key));
  return draft.degree(key);
}

}  // namespace

Imported import_nanotron(const ImportRequest& request, Diagnostics& diagnostics) {
  if (!has_one_file(request, "nanotron", diagnostics)) return {};
  const Json root = read_yaml(request.files.front(), diagnostics);
  if (!is_configuration(root, request.files.front(), diagnostics)) return {};
  Settings settings;
  flatten(root, settings);
  Draft draft(request, "nanotron", std::move(settings), diagnostics);
  const std::int64_t tp = required(draft, "parallelism.tp"), pp = required(draft, "parallelism.pp"),
                     dp = required(draft, "parallelism.dp"), cp = draft.degree("parallelism.context_parallel_size");
  const Draft::Degrees degrees = {{"tp", tp}, {"pp", pp}, {"dp", dp}, {"cp", cp}};
  const std::int64_t ranks = draft.product(degrees);
  if (request.world > 0 && ranks > 0 && ranks != request.world) {
    draft.mistake("", fmt::format("--world-size is {}, but the configuration has {} ({}); leave --world-size out",
                                  request.world, counted(ranks, "rank"), text_of(degrees)));
  }
  draft.axis("tp", tp);
  draft.axis("cp", cp);
  draft.axis("dp", dp);
  draft.axis("pp", pp);
  draft.axis("ep", draft.degree("parallelism.expert_parallel_size"));
  draft.micro_batches(draft.degree("tokens.batch_accumulation_per_replica"));
  draft.preset("llama");
  if (!draft.given("model.model_config.num_key_value_heads")) {
    // nanotron takes as many as there are heads, the preset those of Llama 3.
    draft.size("query_groups", json_integer(draft.integer("model.model_config.num_attention_heads", 32)));
  }
  const std::int64_t unit = draft.integer("model.make_vocab_size_divisible_by", 1);
  if (unit > 1) draft.size("make_vocab_size_divisible_by", json_integer(unit));
  if (draft.value("optimizer.clip_grad") == nullptr) draft.option("clip_grad", json_integer(0));
  return draft.finish("Imported from a nanotron configuration", "imported-nanotron");
}

}  // namespace lockstep::importers
