// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/step_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "src/base/budget.h"
#include "src/scenario/key_table.h"
#include "src/scenario/writing.h"

namespace lockstep {

namespace {

using Write = Json (*)(const Step& step);

constexpr std::string_view in_geometry = "geometry.";

template <auto member>
scenario::StepKey row(std::string_view name, Write write) {
  return {name, [](const Step& from, Step& to) { to.*member = from.*member; },
          [](const Step& a, const Step& b) { return a.*member == b.*member; }, write};
}

template <auto member>
scenario::StepKey geometry_row(std::string_view name, Write write) {
  return {name, [](const Step& from, Step& to) { to.geometry.own().*member = (*from.geometry).*member; },
          [](const Step& a, const Step& b) { return (*a.geometry).*member == (*b.geometry).*member; }, write};
}

Json word(std::string_view text) { return Json::string(std::string(text)); }

Json as_parsed(const std::optional<Expression>& value) {
  if (!value) return {};
  return value->was_parsed() ? Json::string(value->text()) : scenario::written(*value);
}

std::string_view name_of_kind(Geometry::Kind kind) {
  constexpr std::array<std::string_view, 5> names = {"parameter", "rows", "flat", "bucket", "counts"};
  return names[static_cast<std::size_t>(kind)];
}

Json written_only(const std::vector<Only>& list) {
  Json object = Json::object();
  for (const Only& one : list) object.set(name_of(one.axis), scenario::written(one.written, one.coordinates));
  return object;
}

Json written_geometry(const Step& step) {
  Json object = Json::object();
  for (const scenario::StepKey& key : scenario::step_keys()) {
    if (key.name.starts_with(in_geometry) && (key.name == "geometry.kind" || !key.same(step, Step())))
      object.set(key.name.substr(in_geometry.size()), key.write(step));
  }
  return object;
}

std::vector<scenario::StepKey> make_step_keys() {
  return {
      row<&Step::name>("name", [](const Step& step) { return Json::string(step.name); }),
      row<&Step::op>("op", [](const Step& step) { return word(operation(step.op).name); }),
      row<&Step::params>("params", [](const Step& step) { return scenario::written(step.params.items()); }),
      row<&Step::over>("over", [](const Step& step) { return step.over ? scenario::written(*step.over) : Json(); }),
      row<&Step::reduction>(
          "reduce", [](const Step& step) { return word(step.reduction == Reduction::average ? "avg" : "sum"); }),
      row<&Step::by>("by", [](const Step& step) { return as_parsed(step.by); }),
      row<&Step::uses>("uses", [](const Step& step) { return scenario::written(step.uses); }),
      row<&Step::when>("when", [](const Step& step) { return as_parsed(step.when); }),
      row<&Step::only>("only", [](const Step& step) { return written_only(step.only); }),
      row<&Step::root>("root", [](const Step& step) { return step.root ? scenario::written(*step.root) : Json(); }),
      row<&Step::geometry>("geometry", written_geometry),
      row<&Step::on_owned>("on", [](const Step& step) { return word(step.on_owned ? "owned" : "all"); }),
      row<&Step::async>("async", [](const Step& step) { return Json::boolean(step.async); }),
      row<&Step::buffer>("buffer", [](const Step& step) { return Json::string(step.buffer); }),
      row<&Step::buffer>("to", [](const Step& step) { return Json::string(step.buffer); }),
      row<&Step::from>("from", [](const Step& step) { return Json::string(step.from); }),
      row<&Step::what>("what", [](const Step& step) { return Json::string(step.what); }),
      row<&Step::per_rank>("per", [](const Step& step) { return step.per_rank ? word("rank") : Json(); }),
      row<&Step::count>("count", [](const Step& step) { return as_parsed(step.count); }),
      row<&Step::mean_of_norms>("combine",
                                [](const Step& step) { return word(step.mean_of_norms ? "mean_of_norms" : "sum"); }),
      row<&Step::wait_for>("for", [](const Step& step) { return Json::string(step.wait_for); }),
      row<&Step::steps>("steps", [](const Step& step) { return scenario::list_of(step.steps, scenario::as_written); }),
      geometry_row<&Geometry::kind>("geometry.kind",
                                    [](const Step& step) { return word(name_of_kind(step.geometry->kind)); }),
      geometry_row<&Geometry::align>("geometry.align",
                                     [](const Step& step) { return as_parsed(step.geometry->align); }),
      geometry_row<&Geometry::size>("geometry.size", [](const Step& step) { return as_parsed(step.geometry->size); }),
      geometry_row<&Geometry::align_parameter>(
          "geometry.align_parameter", [](const Step& step) { return as_parsed(step.geometry->align_parameter); }),
      geometry_row<&Geometry::align_bucket>("geometry.align_bucket",
                                            [](const Step& step) { return as_parsed(step.geometry->align_bucket); }),
      geometry_row<&Geometry::separate>("geometry.separate",
                                        [](const Step& step) {
                                          const std::optional<Selectors>& separate = step.geometry->separate;
                                          return separate ? scenario::written(separate->items()) : Json::array();
                                        }),
      geometry_row<&Geometry::counts>("geometry.counts",
                                      [](const Step& step) {
                                        return scenario::list_of(step.geometry->counts, [](std::int64_t count) {
                                          return scenario::written(count);
                                        });
                                      }),
  };
}

/// Equal steps are written alike, so 1/4, as it is read, is a division.
void fold(std::optional<Expression>& expression) {
  if (expression) expression = expression->substitute({});
}

}  // namespace

namespace scenario {

const std::vector<StepKey>& step_keys() {
  static const std::vector<StepKey> rows = made_once(make_step_keys);
  return rows;
}

const StepKey& step_key(std::string_view name) {
  const std::vector<StepKey>& rows = step_keys();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const StepKey& row) { return row.name == name; });
  if (found == rows.end()) throw InternalError(fmt::format("no step has the key \"{}\"", name));
  return *found;
}

bool says(const Step& step, std::string_view key) {
  return std::find(step.keys.begin(), step.keys.end(), key) != step.keys.end();
}

void set_key(Step& step, std::string_view key, const Step& from) {
  const StepKey& row = step_key(key);
  row.copy(from, step);
  const std::string_view own = key.starts_with(in_geometry) ? step_key("geometry").name : row.name;
  if (!says(step, own)) step.keys.push_back(own);
}

void remove_key(Step& step, std::string_view key) {
  step_key(key).copy(Step(), step);
  std::erase(step.keys, key);
}

Json as_written(const Step& step) {
  Json json = Json::object();
  for (const std::string_view key : step.keys) json.set(key, step_key(key).write(step));
  return json;
}

}  // namespace scenario

Json to_json(const Step& step) {
  Step plain = step;
  Geometry& geometry = plain.geometry.own();
  for (auto* one : {&plain.by, &plain.when, &plain.count, &geometry.align, &geometry.size, &geometry.align_bucket})
    fold(*one);
  geometry.align_parameter = geometry.align_parameter.substitute({});
  const scenario::ObjectRow& keys = scenario::object_row(scenario::Object::step);
  Json json = Json::object();
  for (const scenario::StepKey& key : scenario::step_keys()) {
    const scenario::ObjectKey* row = scenario::find_key(keys, key.name);
    const bool always = key.name == "op" || (key.name == "steps" && step.op == Op::each);
    if (row == nullptr || (!always && key.same(plain, Step()))) continue;
    if (key.name == "steps") {
      json.set(key.name, scenario::list_of(step.steps, [](const Step& inner) { return to_json(inner); }));
    } else if (scenario::has_key(keys, *row, operation(step.op).name)) {
      json.set(key.name, key.write(plain));
    }
  }
  return json;
}

}  // namespace lockstep
