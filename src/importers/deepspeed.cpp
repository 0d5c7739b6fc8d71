// SPDX-License-Identifier: Apache-2.0
// DeepSpeed: runtime/config.py and runtime/zero/config.py. A configuration says how gradients are reduced and how large
// a batch is; the model and its tensor or pipeline parallelism live in the program.
#include "src/importers/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/importers/files.h"
#include "src/importers/formats.h"
#include "src/importers/syntax.h"

namespace lockstep {

namespace {

/// "auto" is what Hugging Face fills in: as if not given. Returns a copy without it.
Json without_auto(const Json& json) {
  if (json.is_string() && json.text() == "auto") return Json().at(json.place());
  if (!json.is_object()) return json;
  std::vector<Json::Member> members = json.members();
  for (Json::Member& member : members) member.value = without_auto(member.value);
  return Json::object(std::move(members), json.place());
}

}  // namespace

void set_deepspeed_batch(Draft& draft, std::int64_t dp) {
  const auto batch = draft.integer("train_batch_size");
  const auto micro = draft.integer("train_micro_batch_size_per_gpu");
  const auto steps = draft.integer("gradient_accumulation_steps");
  for (const auto& [key, value] :
       {std::pair("train_batch_size", batch), std::pair("train_micro_batch_size_per_gpu", micro),
        std::pair("gradient_accumulation_steps", steps)}) {
    if (value && *value < 1) {
      draft.mistake(key, "expected a number of at least 1");
      return;
    }
  }
  if (dp == 0) return;  // said already
  const std::int64_t all = batch.value_or(0);
  if (batch && micro && steps && all != *micro * *steps * dp) {
    draft.mistake("train_batch_size",
                  fmt::format("it is not train_micro_batch_size_per_gpu {} × gradient_accumulation_steps {} × "
                              "{} data-parallel ranks; DeepSpeed refuses that",
                              *micro, *steps, dp));
  } else if (steps) {
    draft.micro_batches(*steps);
  } else if (batch && micro) {
    if (all % (*micro * dp) != 0) {
      draft.mistake(
          "train_batch_size",
          fmt::format("it does not divide by train_micro_batch_size_per_gpu {} × {} data-parallel ranks", *micro, dp));
    } else {
      draft.micro_batches(all / (*micro * dp));
    }
  } else {
    draft.assume("One micro-batch: gradient_accumulation_steps is 1 where the configuration does not say it.");
  }
}

void set_deepspeed_partitions(Draft& draft, std::int64_t dp) {
  const std::int64_t shard = draft.integer("zero_optimization.mics_shard_size", -1);
  const bool mics = shard > 0 && draft.integer("zero_optimization.stage", 0) == 3;
  if (!mics || dp == 0) {
    draft.axis("dp", dp);
  } else if (dp % shard != 0) {
    draft.mistake("zero_optimization.mics_shard_size", fmt::format("{} data-parallel ranks do not divide by it", dp));
  } else {
    draft.axis("dp_shard", shard);
    draft.axis("dp_replicate", dp / shard);
  }
}

Settings read_deepspeed(const std::shared_ptr<const Source>& source, Diagnostics& diagnostics) {
  Settings settings;
  const Json root = read_hjson(source, diagnostics);
  if (is_configuration(root, source, diagnostics)) flatten(without_auto(root), settings);
  return settings;
}

Imported import_deepspeed(const ImportRequest& request, Diagnostics& diagnostics) {
  if (!has_one_file(request, "DeepSpeed", diagnostics)) return {};
  Settings settings = read_deepspeed(request.files.front(), diagnostics);
  if (!diagnostics.empty()) return {};
  Draft draft(request, "deepspeed", std::move(settings), diagnostics);
  const std::int64_t sp = draft.degree("sequence_parallel_size", request.sp);
  std::int64_t tp = draft.degree("tensor_parallel.autotp_size", request.tp);
  if (tp == 1) tp = draft.degree("tensor_parallel.tp_size");
  const std::int64_t pp = std::max<std::int64_t>(request.pp, 1);
  const std::int64_t dp = draft.data_parallel_size(request.world, {{"tensor", tp}, {"pipeline", pp}, {"Ulysses", sp}});
  draft.axis("tp", tp);
  draft.axis("sp", sp);
  set_deepspeed_partitions(draft, dp);
  draft.axis("pp", pp);
  draft.axis("ep", request.ep > 0 ? request.ep : 1);
  set_deepspeed_batch(draft, dp);
  draft.assumed_model(tp);
  if (sp > 1) {
    draft.assume(
        "How the training script forms its loss with Ulysses is not in the configuration, and no way is right for "
        "every "
        "ZeRO stage: gathered, as DeepSpeed's tutorial does; give --option ulysses_loss=local_mean, local_mean_over_sp "
        "or "
        "gathered_own_slice for another (docs/frameworks/deepspeed.md).");
  }
  return draft.finish("Imported from a DeepSpeed configuration", "imported-deepspeed");
}

}  // namespace lockstep
