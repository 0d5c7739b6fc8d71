// SPDX-License-Identifier: Apache-2.0
// nanotron: src/nanotron/config. Sequence parallelism is a tp_mode.
#include <fmt/format.h>

#include "src/importers/draft.h"
#include "src/importers/formats.h"
#include "src/importers/syntax.h"

namespace lockstep {

namespace {

constexpr std::int64_t largest_size = 1'000'000;

std::int64_t axis_size(Draft& draft, std::string_view key, bool required) {
  if (required && !draft.given(key)) {
    draft.mistake("", fmt::format("{} is not given, and nanotron has no default for it", key));
    return 1;
  }
  const std::int64_t size = draft.integer(key, 1);
  if (size >= 1 && size <= largest_size) return size;
  draft.mistake(key, "expected a size between 1 and 1000000");
  return 1;
}

}  // namespace

Imported import_nanotron(const ImportRequest& request, Diagnostics& diagnostics) {
  if (request.files.size() != 1) {
    diagnostics.add({}, "expected one configuration of nanotron");
    return {};
  }
  const Json root = read_yaml(request.files.front(), diagnostics);
  if (diagnostics.empty() && !root.is_object()) diagnostics.add(root.place(), "expected a map at the top of the file");
  if (!diagnostics.empty()) return {};
  Settings settings;
  flatten(root, settings);
  Draft draft(request, "nanotron", std::move(settings), diagnostics);
  const std::int64_t tp = axis_size(draft, "parallelism.tp", true), pp = axis_size(draft, "parallelism.pp", true);
  const std::int64_t dp = axis_size(draft, "parallelism.dp", true),
                     cp = axis_size(draft, "parallelism.context_parallel_size", false);
  if (request.world > 0 && (tp * pp > largest_size || dp * cp > largest_size || request.world != tp * pp * dp * cp)) {
    draft.mistake("", fmt::format("tp {} × pp {} × dp {} × cp {} are not the {} ranks of --world-size", tp, pp, dp, cp,
                                  request.world));
  }
  draft.axis("tp", tp);
  draft.axis("cp", cp);
  draft.axis("dp", dp);
  draft.axis("pp", pp);
  draft.axis("ep", axis_size(draft, "parallelism.expert_parallel_size", false));
  draft.micro_batches(axis_size(draft, "tokens.batch_accumulation_per_replica", false));
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

}  // namespace lockstep
