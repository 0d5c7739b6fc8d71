// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report.h"
#include "src/base/at.h"
#include "src/report/geometry_classes.h"
#include "src/report/json_report.h"
#include "src/report/json_writer.h"
#include "src/report/placements.h"

namespace lockstep {

namespace {

void write_members(const std::vector<std::vector<int>>& members, report::JsonWriter& json) {
  json.begin_array(true);
  for (const std::vector<int>& group : members) json.numbers(group);
  json.end_array();
}

void write_step_groups(const Mesh& mesh, const std::vector<Step>& steps, report::JsonWriter& json) {
  for (const Step& step : steps) {
    if (step.over && !step.name.empty()) {
      json.key(step.name);
      write_members(mesh.groups(*step.over).members, json);
    }
    write_step_groups(mesh, step.steps, json);
  }
}

void write_groups(const Schedule& schedule, report::JsonWriter& json) {
  json.begin_object();
  json.key("axes").begin_object();
  for (const std::string& name : axis_names()) {
    json.key(name);
    write_members(schedule.mesh.groups(Over{{{*axis_named(name), std::nullopt}}}).members, json);
  }
  json.end_object();
  json.key("steps").begin_object();
  write_step_groups(schedule.mesh, schedule.steps, json);
  json.end_object();
  json.end_object();
}

void write_class(const Model& model, const report::GeometryClass& geometry, report::JsonWriter& json) {
  json.begin_object();
  json.key("step").string(geometry.step->name);
  json.key("groups");
  write_members(geometry.groups, json);
  json.key("buckets").begin_array();
  for (const GeometryLayout::Bucket& bucket : geometry.buckets) {
    json.begin_object(true);
    json.key("begin").number(bucket.begin);
    json.key("end").number(bucket.end);
    json.key("chunk").number(bucket.chunk);
    json.key("dtype").string(name_of(bucket.dtype));
    json.end_object();
  }
  json.end_array();
  json.key("parameters").begin_array();
  for (const report::GeometryClass::Slices& slices : geometry.parameters) {
    json.begin_object(true);
    json.key("name").string(model.parameters()[at(slices.parameter)].name);
    json.key("numel").number(slices.numel);
    if (slices.bucket >= 0) {
      json.key("bucket").number(slices.bucket);
      json.key("begin").number(slices.position);
      json.key("end").number(slices.position + slices.numel);
    }
    json.key("slices").begin_array();
    for (const Interval& slice : slices.slices) json.interval(slice);
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void write_parameters(const Scenario& scenario, report::JsonWriter& json) {
  json.begin_array();
  for (const Parameter& parameter : scenario.schedule->model.parameters()) {
    json.begin_object(true);
    json.key("name").string(parameter.name);
    json.key("shape").begin_array();
    for (const std::int64_t extent : parameter.shape) json.number(extent);
    json.end_array();
    json.key("dtype").string(name_of(parameter.dtype));
    json.key("stage");
    if (parameter.stage) {
      json.number(*parameter.stage);
    } else {
      json.string("all");
    }
    json.key("chunk").number(parameter.chunk);
    json.key("placements").begin_object();
    for (const auto& [axis, placement] : report::placements(scenario.schedule->mesh, parameter)) {
      json.key(axis).string(placement);
    }
    json.end_object();
    if (!parameter.tied.empty()) {
      json.key("tied").string(parameter.tied);
    }
    if (!parameter.copy.empty()) {
      json.key("copy").string(parameter.copy);
    }
    if (parameter.frozen) {
      json.key("frozen").boolean(true);
    }
    json.key("tags").strings(parameter.tags);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

void show_json(const Scenario& scenario, const Write& write) {
  report::JsonWriter json(write);
  json.begin_object();
  json.key("lockstep").number(1);
  json.key("scenario").string_or_null(scenario.name);
  json.key("file").string_or_null(scenario.file);
  json.key("layout");
  report::write_json_layout(scenario.layout, json);
  if (scenario.schedule != nullptr) {
    const Schedule& schedule = *scenario.schedule;
    json.key("groups");
    write_groups(schedule, json);
    json.key("geometry").begin_array();
    const Timeline timeline = walk(schedule);
    for (const report::GeometryClass& geometry : report::geometry_classes(schedule, timeline))
      write_class(schedule.model, geometry, json);
    json.end_array();
    json.key("parameters");
    write_parameters(scenario, json);
    json.key("steps");
    const Json* plain = scenario.resolved.find("schedule");
    if (plain != nullptr && plain->is_object()) plain = plain->find("steps");
    json.begin_array();
    if (plain != nullptr) {
      for (const Json& step : plain->items()) json.value(step, true);
    }
    json.end_array();
  }
  json.end_object();
  json.finish();
}

}  // namespace lockstep
