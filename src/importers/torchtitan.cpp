// SPDX-License-Identifier: Apache-2.0
// torchtitan: the JSON that debug.save_config_file writes (Config.to_dict), and the TOML that versions before 2026
// read.
#include <fmt/format.h>

#include "src/base/counted.h"
#include "src/importers/formats.h"
#include "src/importers/request.h"
#include "src/importers/scenario_builder.h"
#include "src/importers/syntax.h"

namespace lockstep::importers {

namespace {

struct MeshSizes {
  std::int64_t tp = 1, pp = 1, cp = 1, replicate = 1, shard = 1;
};

/// Versions of 2024 had sizes of the mesh under [training] and [experimental], and another name for the local batch.
Settings with_places_of_today(const Settings& settings, Diagnostics& diagnostics) {
  Settings found;
  for (Setting setting : settings.all()) {
    const std::size_t dot = setting.key.find('.');
    const std::string section = setting.key.substr(0, dot);
    const bool is_older = section == "training" || section == "experimental";
    for (const char* size : {"_parallel_degree", "_replicate_degree", "_shard_degree"}) {
      if (is_older && setting.key.ends_with(size)) setting.key = "parallelism" + setting.key.substr(dot);
    }
    if (setting.key == "training.batch_size") setting.key = "training.local_batch_size";
    if (const Setting* other = found.find(setting.key); other != nullptr)
      diagnostics.add(setting.place, fmt::format("{} is given as {} already", setting.written, other->written));
    found.set(std::move(setting));
  }
  return found;
}

MeshSizes read_mesh(ScenarioBuilder& builder) {
  MeshSizes sizes;
  sizes.tp = builder.degree("parallelism.tensor_parallel_degree");
  sizes.pp = builder.degree("parallelism.pipeline_parallel_degree");
  sizes.cp = builder.degree("parallelism.context_parallel_degree");
  sizes.replicate = builder.degree("parallelism.data_parallel_replicate_degree");
  const std::int64_t shard = builder.integer("parallelism.data_parallel_shard_degree", -1);
  const std::int64_t world = builder.request().world;
  ScenarioBuilder::Degrees degrees = {
      {"tensor", sizes.tp}, {"pipeline", sizes.pp}, {"context", sizes.cp}, {"replicate", sizes.replicate}};
  if (shard == -1) {
    sizes.shard = builder.data_parallel_size(world, degrees);
    if (sizes.shard > 0)
      builder.assume(fmt::format("data_parallel_shard_degree is -1: {} of {} ranks.", sizes.shard, world));
  } else if (shard < 1 || shard > largest_import_size) {
    builder.mistake("parallelism.data_parallel_shard_degree",
                    fmt::format("expected -1 or a degree between 1 and {}, found {}", largest_import_size, shard));
  } else {
    sizes.shard = shard;
    degrees.emplace_back("shard", shard);
    const std::int64_t ranks = builder.product(degrees);
    if (world > 0 && ranks > 0 && world != ranks) {
      builder.mistake("parallelism.data_parallel_shard_degree",
                      fmt::format("--world-size is {}, but the configuration has {} ({}); leave --world-size out",
                                  world, counted(ranks, "rank"), text_of(degrees)));
    }
  }
  return sizes;
}

/// `all` / (`one` × data-parallel ranks), a multiple of `unit`; 0 and a mistake where it is not.
std::int64_t divided(ScenarioBuilder& builder, std::string_view key, std::int64_t all, std::int64_t one,
                     std::int64_t dp, std::int64_t unit) {
  if (one >= 1 && all >= 1 && all % one == 0 && all / one % dp == 0 && all / one / dp % unit == 0)
    return all / one / dp;
  builder.mistake(key, fmt::format("{} does not divide by {} × {} data-parallel ranks × {} pipeline micro-batches", all,
                                   one, dp, unit));
  return 0;
}

/// The micro-batches of an optimizer step: those of the pipeline, times the gradient accumulation.
std::int64_t micro_batches(ScenarioBuilder& builder, const MeshSizes& sizes) {
  const std::int64_t dp = sizes.replicate * sizes.shard;
  if (dp == 0) return 0;  // said already
  const auto local = builder.integer("training.local_batch_size");
  if (!local) {
    const std::int64_t stages = sizes.pp > 1 ? builder.integer("parallelism.num_pp_microbatches", 1) : 1;
    const std::int64_t all = builder.integer("training.num_tokens_per_train_step", -1);
    const std::int64_t one = builder.integer("training.num_tokens_per_microbatch_per_dp_rank", 16384);
    if (stages < 1) {
      builder.mistake("parallelism.num_pp_microbatches", "expected at least one micro-batch");
      return 0;
    }
    return all < 0 ? stages : divided(builder, "training.num_tokens_per_train_step", all, one, dp, stages);
  }
  // Older versions count sequences, and cut a local batch into the pipeline's micro-batches.
  const std::int64_t part = sizes.pp > 1 ? builder.integer("parallelism.pipeline_parallel_microbatch_size", 1) : *local;
  if (*local < 1 || part < 1 || *local % part != 0) {
    builder.mistake("training.local_batch_size",
                    fmt::format("it does not divide by pipeline_parallel_microbatch_size {}", part));
    return 0;
  }
  const std::int64_t all = builder.integer("training.global_batch_size", -1);
  return *local / part * (all < 0 ? 1 : divided(builder, "training.global_batch_size", all, *local, dp, 1));
}

void set_tokens(ScenarioBuilder& builder, const MeshSizes& sizes) {
  const std::int64_t count = micro_batches(builder, sizes);
  if (count > largest_import_size)
    builder.mistake("", fmt::format("{} micro-batches are more than lockstep takes", count));
  if (count >= 1) builder.micro_batches(count);
}

/// The preset of a flavor, from the table.
void set_transformer(ScenarioBuilder& builder) {
  const std::string prefix = builder.given("model_spec.name") ? "model_spec." : "model.";
  const Json* name = builder.value(prefix + "name");
  const Json* flavor = builder.value(prefix + "flavor");
  const auto text = [](const Json* json) {
    return json != nullptr && json->is_string() ? json->text() : std::string();
  };
  if (!builder.request().model.empty()) {
    builder.meaning(prefix + "name", "nothing: --model is given");
    builder.meaning(prefix + "flavor", "nothing: --model is given");
    builder.preset(builder.request().model);
    return;
  }
  const Json* flavors = builder.table().other("flavors")->find(text(name));
  const Json* sizes = flavors != nullptr ? flavors->find(text(flavor)) : nullptr;
  if (sizes == nullptr) {
    builder.meaning(prefix + "name", "nothing: lockstep does not know this model and flavor");
    builder.meaning(prefix + "flavor", "nothing: lockstep does not know this model and flavor");
    builder.mistake(prefix + "flavor",
                    "lockstep does not know the sizes of this model; give --model PRESET and --size KEY=VALUE");
    return;
  }
  for (const Json::Member& member : sizes->members()) {
    if (member.key == "preset") {
      builder.preset(member.value.text());
    } else if (member.key == "enable_weight_tying") {
      builder.size("tied_embeddings", member.value.at({}));
      builder.option(member.key, member.value.at({}));
    } else {
      builder.size(member.key, member.value.at({}));
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
  const bool has_older_pipeline = settings.find("experimental.pipeline_parallel_degree") != nullptr;
  settings = with_places_of_today(settings, diagnostics);
  if (!diagnostics.empty()) return {};
  ScenarioBuilder builder(request, "torchtitan", std::move(settings), diagnostics);
  const MeshSizes sizes = read_mesh(builder);
  if (has_older_pipeline && sizes.pp > 1 && request.micro_batches <= 0)
    builder.mistake("parallelism.pipeline_parallel_degree",
                    "lockstep does not know into how many micro-batches this version cuts a batch for its pipeline; "
                    "give --micro-batches N");
  builder.axis("tp", sizes.tp);
  builder.axis("cp", sizes.cp);
  if (sizes.replicate > 1) {
    builder.axis("dp_shard", sizes.shard);
    builder.axis("dp_replicate", sizes.replicate);
  } else {
    builder.axis("dp", sizes.shard);
  }
  builder.axis("pp", sizes.pp);
  builder.axis("ep", builder.degree("parallelism.expert_parallel_degree"));
  set_tokens(builder, sizes);
  set_transformer(builder);
  if (toml) {
    builder.assume(
        "The schedule is that of torchtitan since it normalizes by all tokens of a step; older versions averaged "
        "over ranks and micro-batches, as the framework fsdp2 does.");
  }
  return builder.finish("Imported from a torchtitan configuration", "imported-torchtitan");
}

}  // namespace lockstep::importers
