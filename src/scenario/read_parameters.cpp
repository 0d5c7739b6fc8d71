// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "src/base/budget.h"
#include "src/base/counted.h"
#include "src/scenario/reading.h"

namespace lockstep::scenario {

namespace {

Dtype read_dtype(const std::string& text) {
  if (text == "float64") return Dtype::float64;
  if (text == "float16") return Dtype::float16;
  return text == "bfloat16" ? Dtype::bfloat16 : Dtype::float32;
}

std::optional<int> read_stage(const Json* value, Reading& reading) {
  if (value == nullptr) return 0;
  if (value->is_string()) return std::nullopt;  // "all"
  const int pp = reading.mesh->size(Axis::pp);
  std::int64_t stage = whole_number(*value).value_or(0);
  if (!reading.size_known(Axis::pp)) return 0;
  if (stage < 0) stage += pp;
  if (stage >= 0 && stage < pp) return static_cast<int>(stage);
  reading.diagnostics.add(
      value->place(), fmt::format("stage {} does not exist: \"pp\" is {}, and stages count from 0", value->text(), pp));
  return 0;
}

int read_chunk(const Json* value, Reading& reading) {
  if (value == nullptr) return 0;
  const std::int64_t chunk = whole_number(*value).value_or(0);
  if (!reading.layout_known || chunk < reading.layout.virtual_stages) return static_cast<int>(chunk);
  reading.diagnostics.add(value->place(), fmt::format("chunk {} does not exist: \"virtual_stages\" is {}", chunk,
                                                      reading.layout.virtual_stages));
  return 0;
}

std::vector<Shard> read_shards(const Json& value, std::size_t dims, Reading& reading) {
  std::vector<Shard> shards;
  for (const Json::Member& member : value.members()) {
    const std::optional<Axis> axis = read_axis_key(member, reading);
    if (!axis) continue;
    Shard shard{*axis};
    const Json* dim = &member.value;
    if (member.value.is_object()) {
      const Fields fields(member.value, Object::uneven_shard, "", fmt::format("in the shard over \"{}\"", member.key),
                          reading.diagnostics);
      dim = fields.find("dim");
      shard.uneven = fields.boolean("uneven");
      if (dim == nullptr) continue;
    }
    const std::int64_t number = whole_number(*dim).value_or(0);
    if (number >= static_cast<std::int64_t>(dims)) {
      reading.diagnostics.add(dim->place(), fmt::format("dimension {} does not exist: the shape has {}", number,
                                                        counted(dims, "dimension")));
      continue;
    }
    shard.dim = static_cast<int>(number);
    shards.push_back(shard);
  }
  return shards;
}

std::vector<Axis> read_axes(const Json& value) {
  std::vector<Axis> axes;
  for (const Json& item : value.items()) axes.push_back(*axis_named(item.text()));
  return axes;
}

std::vector<int> read_micro_batches(const Json& value, Reading& reading) {
  const auto& counts = reading.batch.micro_batch_counts;
  const int most = *std::max_element(counts.begin(), counts.end());
  std::vector<int> list;
  for (const Json& item : value.items()) {
    const std::int64_t index = whole_number(item).value_or(0);
    if (index >= most && !reading.any_micro_batches) {
      reading.diagnostics.add(
          item.place(),
          fmt::format("micro-batch {} does not exist: an optimizer step has {}, counted from 0", index, most));
    } else {
      list.push_back(static_cast<int>(index));
    }
  }
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

void check_uses_of_parameter(const std::vector<std::string>& uses, const Json& array, Reading& reading) {
  constexpr std::size_t limit = 1000;
  if (uses.size() > limit) {
    reading.diagnostics.add(array.place(), fmt::format("expected at most {} uses, found {}", limit, uses.size()));
  }
  std::set<std::string> seen;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (!seen.insert(uses[i]).second) {
      reading.diagnostics.add(array.items()[i].place(), fmt::format("use \"{}\" is named twice", uses[i]));
    }
  }
}

}  // namespace

std::optional<Parameter> read_parameter(const Json& object, Reading& reading) {
  const Json* name = object.find("name");
  const std::string where =
      name != nullptr && name->is_string() ? fmt::format("in parameter \"{}\"", name->text()) : "in a parameter";
  constexpr std::int64_t units = 150;
  Budget::spend(units);
  const Fields fields(object, Object::parameter, "", where, reading.diagnostics);
  if (fields.find("name") == nullptr) return std::nullopt;
  Parameter parameter;
  parameter.place = object.place();
  parameter.name = fields.text("name");
  if (const Json* shape = fields.find("shape")) {
    for (const Json& item : shape->items()) parameter.shape.push_back(*whole_number(item));
  }
  parameter.dtype = read_dtype(fields.text("dtype"));
  parameter.stage = read_stage(fields.find("stage"), reading);
  parameter.chunk = read_chunk(fields.find("chunk"), reading);
  if (const Json* shard = fields.find("shard")) parameter.shard = read_shards(*shard, parameter.shape.size(), reading);
  if (const Json* partial = fields.find("partial")) parameter.partial = read_axes(*partial);
  if (const Json* dispatch = fields.find("dispatch")) parameter.dispatch = read_axes(*dispatch);
  parameter.tied = fields.text("tied");
  parameter.copy = fields.text("copy");
  if (const Json* copy = fields.find("copy"); copy != nullptr && parameter.tied.empty()) {
    reading.diagnostics.add(
        copy->place(),
        fmt::format("\"copy\" {} says which copy of a tied group this is; \"tied\" has to name the group", where));
  }
  if (const Json* uses = fields.find("uses")) {
    parameter.uses = fields.texts("uses");
    check_uses_of_parameter(parameter.uses, *uses, reading);
  }
  if (const Json* value = fields.find("micro_batches")) parameter.micro_batches = read_micro_batches(*value, reading);
  if (const Json* only = fields.find("only")) {
    for (const Only& item : read_only(*only, reading)) {
      parameter.only.push_back({item.axis, item.coordinates});
      if (reading.size_known(item.axis)) continue;
      // Like a stage: which of them exist is seen where a size is given.
      std::vector<int>& coordinates = parameter.only.back().coordinates;
      const int size = reading.mesh->size(item.axis);
      std::erase_if(coordinates, [&](int coordinate) { return coordinate >= size; });
      if (coordinates.empty()) coordinates.push_back(0);
    }
  }
  parameter.frozen = fields.boolean("frozen");
  parameter.tags = fields.texts("tags");
  return parameter;
}

std::vector<Parameter> read_parameters(const Json& array, Reading& reading) {
  const std::size_t before = reading.diagnostics.size();
  std::vector<Parameter> parameters;
  std::unordered_set<std::string> names;
  if (array.items().size() > parameter_limit) {
    reading.diagnostics.add(array.place(), fmt::format("the model has {} parameters; expected at most {}",
                                                       array.items().size(), parameter_limit));
  } else if (check_type(array, Type::parameters, "", reading.diagnostics)) {
    for (const Json& item : array.items()) {
      std::optional<Parameter> parameter = read_parameter(item, reading);
      if (!parameter) continue;
      if (!names.insert(parameter->name).second) {
        reading.diagnostics.add(
            item.find("name")->place(),
            fmt::format("two parameters are named \"{}\"; give one of them another name", parameter->name));
      }
      reading.uses.insert(parameter->uses.begin(), parameter->uses.end());
      parameters.push_back(std::move(*parameter));
    }
  }
  reading.parameters_known = reading.diagnostics.size() == before;
  return parameters;
}

}  // namespace lockstep::scenario
