// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lockstep/scenario.h"
#include "src/scenario/template.h"
#include "src/scenario/writing.h"

namespace lockstep {

namespace {

Json number(std::int64_t value) { return scenario::written(value); }

Json written_axes(const std::vector<Axis>& axes) {
  return scenario::list_of(axes, [](Axis axis) { return Json::string(std::string(name_of(axis))); });
}

Json layout_json(const Layout& layout) {
  Json object = Json::object();
  const auto size = [&](Axis axis, int value) {
    if (value != 1) object.set(name_of(axis), number(value));
  };
  size(Axis::tp, layout.tp);
  size(Axis::cp, layout.cp);
  size(Axis::sp, layout.sp);
  size(Axis::dp, layout.dp);
  size(Axis::pp, layout.pp);
  size(Axis::ep, layout.ep);
  size(Axis::etp, layout.etp);
  // Where they are not written all of dp is one shard.
  size(Axis::dp_replicate, layout.dp_replicate);
  std::string order;
  for (const Axis axis : layout.order) order += (order.empty() ? "" : "-") + std::string(name_of(axis));
  object.set("order", Json::string(order));
  if (layout.sequence_parallel) object.set("sequence_parallel", Json::boolean(true));
  if (layout.virtual_stages != 1) object.set("virtual_stages", number(layout.virtual_stages));
  return object;
}

Json shards_json(const std::vector<Shard>& shards) {
  Json object = Json::object();
  for (const Shard& shard : shards) {
    object.set(name_of(shard.axis),
               shard.uneven ? Json::object({{"dim", {}, number(shard.dim)}, {"uneven", {}, Json::boolean(true)}})
                            : number(shard.dim));
  }
  return object;
}

/// The one value of "main" by itself, or an object from uses to values.
template <typename Value, typename Write>
Json by_use(const std::map<std::string, Value>& values, const Write& write) {
  if (values.size() == 1 && values.begin()->first == "main") return write(values.begin()->second);
  Json object = Json::object();
  for (const auto& [use, value] : values) object.set(use, write(value));
  return object;
}

Json tokens_json(const Batch::Tokens& tokens) {
  if (tokens.kind == Batch::Tokens::Kind::uneven) return Json::string("uneven");
  if (tokens.kind == Batch::Tokens::Kind::even) return Json::string("even");
  return scenario::list_of(tokens.list.lists(), [](const auto& of_micro_batch) {
    return scenario::list_of(of_micro_batch, [](const auto& of_dp) {
      return scenario::list_of(of_dp, [](const auto& of_cp) { return scenario::list_of(of_cp, number); });
    });
  });
}

Json loss_json(const Loss& loss) {
  switch (loss.kind) {
    case Loss::Kind::token_mean:
      return Json::string("token_mean");
    case Loss::Kind::micro_batch_mean:
      return Json::string("micro_batch_mean");
    case Loss::Kind::local_mean:
      return Json::string("local_mean");
    case Loss::Kind::sum:
      return Json::string("sum");
    case Loss::Kind::weight:
      return Json::object({{"weight", {}, scenario::written(loss.weight)}});
  }
  return {};
}

Json batch_json(const Batch& batch) {
  Json object = Json::object();
  const std::vector<int>& counts = batch.micro_batch_counts;
  const bool one_count = std::equal(counts.begin() + 1, counts.end(), counts.begin());
  object.set("micro_batches", one_count ? number(counts.front()) : scenario::written(counts));
  if (counts.size() > 1) object.set("steps", number(static_cast<std::int64_t>(counts.size())));
  if (!batch.tokens_of_use.empty()) object.set("tokens", by_use(batch.tokens_of_use, tokens_json));
  if (!batch.loss_of_use.empty()) object.set("loss", by_use(batch.loss_of_use, loss_json));
  if (!batch.weight_of_use.empty()) {
    Json weights = Json::object();
    for (const auto& [use, weight] : batch.weight_of_use) weights.set(use, scenario::json_of(weight, {}));
    object.set("weight", weights);
  }
  return object;
}

}  // namespace

Json to_json(const Parameter& parameter) {
  Json object = Json::object(
      {{"name", {}, Json::string(parameter.name)}, {"shape", {}, scenario::list_of(parameter.shape, number)}});
  if (parameter.dtype != Dtype::float32) object.set("dtype", Json::string(std::string(name_of(parameter.dtype))));
  if (!parameter.stage) object.set("stage", Json::string("all"));
  if (parameter.stage.value_or(0) != 0) object.set("stage", number(*parameter.stage));
  if (parameter.chunk != 0) object.set("chunk", number(parameter.chunk));
  if (!parameter.shard.empty()) object.set("shard", shards_json(parameter.shard));
  if (!parameter.partial.empty()) object.set("partial", written_axes(parameter.partial));
  if (!parameter.dispatch.empty()) object.set("dispatch", written_axes(parameter.dispatch));
  if (!parameter.tied.empty()) object.set("tied", Json::string(parameter.tied));
  if (!parameter.copy.empty()) object.set("copy", Json::string(parameter.copy));
  if (parameter.uses != Parameter().uses) object.set("uses", scenario::written(parameter.uses));
  if (parameter.micro_batches) object.set("micro_batches", scenario::written(*parameter.micro_batches));
  if (!parameter.only.empty()) {
    Json only = Json::object();
    for (const Parameter::Only& one : parameter.only) only.set(name_of(one.axis), scenario::written(one.coordinates));
    object.set("only", only);
  }
  if (parameter.frozen) object.set("frozen", Json::boolean(true));
  if (!parameter.tags.empty()) object.set("tags", scenario::written(parameter.tags));
  return object;
}

Json to_json(const Schedule& schedule) {
  const auto write = [](const auto& value) { return to_json(value); };
  Json steps = Json::object({{"steps", {}, scenario::list_of(schedule.steps, write)}});
  if (schedule.result != "grad") steps.set("result", Json::string(schedule.result));
  return Json::object(
      {{"lockstep", {}, number(1)},
       {"layout", {}, layout_json(schedule.mesh.layout())},
       {"model", {}, Json::object({{"parameters", {}, scenario::list_of(schedule.model.parameters(), write)}})},
       {"batch", {}, batch_json(schedule.batch)},
       {"schedule", {}, steps}});
}

}  // namespace lockstep
