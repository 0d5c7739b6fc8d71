// SPDX-License-Identifier: Apache-2.0
// torchtitan: the JSON that debug.save_config_file writes (Config.to_dict), and the TOML that versions before 2026
// read.
#include <fmt/format.h>

#include "src/base/counted.h"
#include "src/importers/draft.h"
#include "src/importers/formats.h"
#include "src/importers/request.h"
#include "src/importers/syntax.h"

namespace lockstep::importers {

namespace {

struct MeshSizes {
  std::int64_t tp = 1, pp = 1, cp = 1, replicate = 1, shard = 1;
};

MeshSizes read_mesh(Draft& draft) {
  MeshSizes sizes;
  sizes.tp = draft.degree("parallelism.tensor_parallel_degree");
  sizes.pp = draft.degree("parallelism.pipeline_parallel_degree");
  sizes.cp = draft.degree("parallelism.context_parallel_degree");
  sizes.replicate = draft.degree("parallelism.data_parallel_replicate_degree");
  const std::int64_t shard = draft.integer("parallelism.data_parallel_shard_degree", -1);
  const std::int64_t world = draft.request().world;
  Draft::Degrees degrees = {
      {"tensor", sizes.tp}, {"pipeline", sizes.pp}, {"context", sizes.cp}, {"replicate", sizes.replicate}};
  if (shard == -1) {
    sizes.shard = draft.data_parallel_size(world, degrees);
    if (sizes.shard > 0)
      draft.assume(fmt::format("data_parallel_shard_degree is -1: {} of {} ranks.", sizes.shard, world));
  } else if (shard < 1 || shard > largest_import_size) {
    draft.mistake("parallelism.data_parallel_shard_degree",
                  fmt::format("expected -1 or a degree between 1 and {}, found {}", largest_import_size, shard));
  } else {
    sizes.shard = shard;
    degrees.emplace_back("shard", shard);
    const std::int64_t ranks = draft.product(degrees);
    if (world > 0 && ranks > 0 && world != ranks) {
      draft.mistake("parallelism.data_parallel_shard_degree",
                    fmt::format("--world-size is {}, but the configuration has {} ({}); leave --world-size out", world,
                                counted(ranks, "rank"), text_of(degrees)));
    }
  }
  return sizes;
}

/// `all` / (`one` × data-parallel ranks), a multiple of `unit`; 0 and a mistake where it is not.
std::int64_t divided(Draft& draft, std::string_view key, std::int64_t all, std::int64_t one, std::int64_t dp,
                     std::int64_t unit) {
  if (one >= 1 && all >= 1 && all % one == 0 && all / one % dp == 0 && all / one / dp % unit == 0)
    return all / one / dp;
  draft.mistake(key, fmt::format("{} does not divide by {} × {} data-parallel ranks × {} pipeline micro-batches", all,
                                 one, dp, unit));
  return 0;
}

/// The micro-batches of an optimizer step: those of the pipeline, times the gradient accumulation.
std::int64_t micro_batches(Draft& draft, const MeshSizes& sizes) {
  const std::int64_t dp = sizes.replicate * sizes.shard;
  if (dp == 0) return 0;  // said already
  const auto local = draft.integer("training.local_batch_size");
  if (!local) {
    const std::int64_t stages = sizes.pp > 1 ? draft.integer("parallelism.num_pp_microbatches", 1) : 1;
    const std::int64_t all = draft.integer("training.num_tokens_per_train_step", -1);
    const std::int64_t one = draft.integer("training.num_tokens_per_microbatch_per_dp_rank", 16384);
    if (stages < 1) {
      draft.mistake("parallelism.num_pp_microbatches", "expected at least one micro-batch");
      return 0;
    }
    return all < 0 ? stages : divided(draft, "training.num_tokens_per_train_step", all, one, dp, stages);
  }
  // Older versions count sequences, and cut a local batch into the pipeline's micro-batches.
  const std::int64_t part = sizes.pp > 1 ? draft.integer("parallelism.pipeline_parallel_microbatch_size", 1) : *local;
  if (*local < 1 || part < 1 || *local % part != 0) {
    draft.mistake("training.local_batch_size",
                  fmt::format("it does not divide by pipeline_parallel_microbatch_size {}", part));
    return 0;
  }
  const std::int64_t all = draft.integer("training.global_batch_size", -1);
  return *local / part * (all < 0 ? 1 : divided(draft, "training.global_batch_size", all, *local, dp, 1));
}

void set_tokens(Draft& draft, const MeshSizes& sizes) {
  const std::int64_t count = micro_batches(draft, sizes);
  if (count > largest_import_size)
    draft.mistake("", fmt::format("{} micro-batches are more than lockstep takes", count));
  if (count >= 1) draft.micro_batches(count);
}

/// The preset of a flavor, from the table.
void set_transformer(Draft& draft) {
  const std::string prefix = draft.given("model_spec.name") ? "model_spec." : "model.";
  const Json* name = draft.value(prefix + "name");
  const Json* flavor = draft.value(prefix + "flavor");
  const auto text = [](const Json* json) {
    return json != nullptr && json->is_string() ? json->text() : std::string();
  };
  if (!draft.request().model.empty()) {
    draft.meaning(prefix + "name", "nothing: --model is given");
    draft.meaning(prefix + "flavor", "nothing: --model is given");
    draft.preset(draft.request().model);
    return;
  }
  const Json* flavors = draft.table().other("flavors")->find(text(name));
  const Json* sizes = flavors != nullptr ? flavors->find(text(flavor)) : nullptr;
  if (sizes == nullptr) {
    draft.meaning(prefix + "name", "nothing: lockstep does not know this model and flavor");
    draft.meaning(prefix + "flavor", "nothing: lockstep does not know this model and flavor");
    draft.mistake(prefix + "flavor",
                  "lockstep does not know the sizes of this model; give --model PRESET and --size KEY=VALUE");
    return;
  }
  for (const Json::Member& member : sizes->members()) {
    if (member.key == "preset") {
      draft.preset(member.value.text());
    } else {
      draft.size(member.key, member.value.at({}));
    }
  }
}

}  // namespace

Imported import_torchtitan(const ImportRequest& request, Diagnostics& diagnostics) {
  if (!has_one_file(request, "torchtitan", diagnostics)) return {};
  const std::shared_ptr<const Source>& source = request.files.front();
  const bool toml = source->name.ends_with(".toml");
  const Json root = toml ? read_toml(source, diagnostics) : read_hjson(source, diagnostics);
  if (!is_configuration(root, source, diagnostics)) return {};
  Settings settings;
  flatten(root, settings);
  Draft draft(request, "torchtitan", std::move(settings), diagnostics);
  const MeshSizes sizes = read_mesh(draft);
  draft.axis("tp", sizes.tp);
  draft.axis("cp", sizes.cp);
  if (sizes.replicate > 1) {
    draft.axis("dp_shard", sizes.shard);
    draft.axis("dp_replicate", sizes.replicate);
  } else {
    draft.axis("dp", sizes.shard);
  }
  draft.axis("pp", sizes.pp);
  draft.axis("ep", draft.degree("parallelism.expert_parallel_degree"));
  set_tokens(draft, sizes);
  set_transformer(draft);
  if (toml) {
    draft.assume(
        "The schedule is that of torchtitan since it normalizes by all tokens of a step; older versions averaged "
        "over ranks and micro-batches, as the framework fsdp2 does.");
  }
  return draft.finish("Imported from a torchtitan configuration", "imported-torchtitan");
}

}  // namespace lockstep::importers
