// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "src/expression/node.h"
#include "src/scenario/template.h"
#include "src/scenario/writing.h"

namespace lockstep {

namespace {

std::string_view name_of_kind(Geometry::Kind kind) {
  constexpr std::array<std::string_view, 5> names = {"parameter", "rows", "flat", "bucket", "counts"};
  return names[static_cast<std::size_t>(kind)];
}

class StepWriter {
 public:
  explicit StepWriter(const Step& step) : step_(step) {}

  Json write() {
    const Operation& row = operation(step_.op);
    text("name", step_.name);
    text("op", std::string(row.name));
    if (!step_.params.items().empty()) json_.set("params", written(step_.params.items()));
    if (step_.over) json_.set("over", written(*step_.over));
    if (step_.reduction == Reduction::average) text("reduce", "avg");
    expression("by", step_.by);
    if (!step_.uses.empty()) json_.set("uses", written(step_.uses));
    expression("when", step_.when);
    only();
    if (step_.root) json_.set("root", written(*step_.root));
    if (!(step_.geometry == Geometry())) json_.set("geometry", written(step_.geometry));
    if (step_.on_owned) text("on", "owned");
    if (step_.async) json_.set("async", Json::boolean(true));
    if (step_.buffer != "grad") text(is_transfer() ? "to" : "buffer", step_.buffer);
    text("from", step_.from);
    text("what", step_.what);
    if (step_.per_rank) text("per", "rank");
    expression("count", step_.count);
    if (step_.mean_of_norms) text("combine", "mean_of_norms");
    text("for", step_.wait_for);
    if (step_.op == Op::each) body();
    return std::move(json_);
  }

 private:
  bool is_transfer() const { return step_.op == Op::copy || step_.op == Op::accumulate; }
  void text(std::string_view key, const std::string& value) {
    if (!value.empty()) json_.set(key, Json::string(value));
  }
  void expression(std::string_view key, const std::optional<Expression>& value) {
    if (value) json_.set(key, written(*value));
  }
  void only() {
    if (step_.only.empty()) return;
    Json object = Json::object();
    for (const Only& one : step_.only) object.set(name_of(one.axis), written(one.written, one.coordinates));
    json_.set("only", object);
  }
  void body() {
    json_.set("steps", list_of(step_.steps, [](const Step& step) { return to_json(step); }));
  }

  const Step& step_;
  Json json_ = Json::object();
};

}  // namespace

Json written(const Expression& expression) {
  // So that equal ones are written alike: 1/4, as it is read, is a division.
  const Expression plain = expression.substitute({});
  const Expression::Node& tree = plain.tree();
  // A string that is a value stands in quotes of its own.
  if (tree.kind != Expression::Node::Kind::value || std::holds_alternative<std::string>(tree.value))
    return Json::string(plain.to_string());
  return json_of(tree.value, {});
}

Json written(const std::vector<std::string>& words) {
  return list_of(words, [](const std::string& word) { return Json::string(word); });
}

Json written(const std::vector<int>& numbers) {
  return list_of(numbers, [](int number) { return written(std::int64_t{number}); });
}

Json written(const Coordinate& coordinate) {
  switch (coordinate.kind) {
    case Coordinate::Kind::first:
      return Json::string("first");
    case Coordinate::Kind::last:
      return Json::string("last");
    case Coordinate::Kind::number:
      break;
  }
  return written(std::int64_t{coordinate.number});
}

Json written(const std::vector<Coordinate>& in_file, const std::vector<int>& numbers) {
  if (in_file.empty()) return written(numbers);
  return list_of(in_file, [](const Coordinate& coordinate) { return written(coordinate); });
}

Json written(const Over& over) {
  const bool picks = std::any_of(over.picks.begin(), over.picks.end(),
                                 [](const Over::Pick& pick) { return pick.coordinates.has_value(); });
  if (!picks && over.picks.size() == 1) return Json::string(std::string(name_of(over.picks.front().axis)));
  if (!picks)
    return list_of(over.picks, [](const Over::Pick& pick) { return Json::string(std::string(name_of(pick.axis))); });
  Json object = Json::object();
  for (const Over::Pick& pick : over.picks)
    object.set(name_of(pick.axis), pick.coordinates ? written(pick.written, *pick.coordinates) : Json::string("all"));
  return object;
}

Json written(const Root& root) {
  if (root.position) return Json::number(std::to_string(*root.position));
  Json object = Json::object();
  for (const auto& [axis, coordinate] : root.written) object.set(name_of(axis), written(coordinate));
  if (!root.written.empty()) return object;
  for (const auto& [axis, coordinate] : root.coordinates) object.set(name_of(axis), written(std::int64_t{coordinate}));
  return object;
}

Json written(const Geometry& geometry) {
  Json object = Json::object({{"kind", {}, Json::string(std::string(name_of_kind(geometry.kind)))}});
  if (geometry.align) object.set("align", written(*geometry.align));
  if (geometry.size) object.set("size", written(*geometry.size));
  if (!(geometry.align_parameter == Geometry().align_parameter))
    object.set("align_parameter", written(geometry.align_parameter));
  if (geometry.align_bucket) object.set("align_bucket", written(*geometry.align_bucket));
  if (geometry.separate) object.set("separate", written(geometry.separate->items()));
  if (!geometry.counts.empty())
    object.set("counts", list_of(geometry.counts, [](std::int64_t count) { return written(count); }));
  return object;
}

Json to_json(const Step& step) { return StepWriter(step).write(); }

}  // namespace lockstep
