// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/operation.h"
#include "src/base/counted.h"
#include "src/scenario/other_words.h"
#include "src/scenario/reading.h"
#include "src/scenario/step_keys.h"

namespace lockstep::scenario {

namespace {

std::string where_of(const Json& object, const std::string& op) {
  const Json* name = object.find("name");
  if (name != nullptr && name->is_string()) return fmt::format("in step \"{}\"", name->text());
  return fmt::format("in a step with the op \"{}\"", op);
}

/// The op of a step, or nothing where a mistake was added.
std::optional<Op> read_op(const Json& object, Reading& reading) {
  const Json* op = object.find("op");
  const ObjectKey& row = *find_key(object_row(Object::step), "op");
  if (!object.is_object()) {
    reading.diagnostics.add(object.place(), fmt::format("expected a step, found {}", object.describe()));
    return std::nullopt;
  }
  if (op == nullptr) {
    const Json* name = object.find("name");
    const std::string where =
        name != nullptr && name->is_string() ? fmt::format("step \"{}\"", name->text()) : "a step";
    reading.diagnostics.add(object.place(), fmt::format("missing key \"op\" in {}: {}", where, row.help));
    return std::nullopt;
  }
  const std::vector<std::string> ops = split_words(row.allowed);
  const std::optional<Op> found = op->is_string() ? op_named(op->text()) : std::nullopt;
  if (!found) {
    const std::string near = op->is_string() ? did_you_mean_here(op->text(), ops) : "";
    reading.diagnostics.add(op->place(),
                            fmt::format("expected the name of an op, found {}{}", op->describe(),
                                        near.empty() ? "; the ops are " + quoted_alternatives(ops) : near));
  }
  return found;
}

void check_position(const Step& step, Reading& reading) {
  if (!step.root || !step.root->position || !step.over) return;
  std::int64_t size = 1;
  for (const Over::Pick& pick : step.over->picks) {
    if (!reading.size_known(pick.axis)) return;
    size *= pick.coordinates ? static_cast<std::int64_t>(pick.coordinates->size()) : reading.mesh->size(pick.axis);
  }
  if (*step.root->position >= size) {
    reading.diagnostics.add(step.places->root,
                            fmt::format("root {} is not in the group, which has {}: positions count from 0",
                                        *step.root->position, counted(size, "member")));
  }
}

void check_root(const Step& step, Reading& reading) {
  if (!step.root || step.root->coordinates.empty() || !step.over || !reading.all_known()) return;
  for (const std::vector<int>& members : reading.mesh->groups(*step.over).members) {
    const auto found = std::count_if(members.begin(), members.end(), [&](int rank) {
      return std::all_of(step.root->coordinates.begin(), step.root->coordinates.end(),
                         [&](const auto& at) { return reading.mesh->coordinate(rank, at.first) == at.second; });
    });
    if (found == 1) continue;
    reading.diagnostics.add(
        step.places->root,
        fmt::format("\"root\" must be one member of each group, but {} of the {} of the group of rank {} "
                    "have these coordinates",
                    found == 0 ? "none" : std::to_string(found), counted(members.size(), "member"), members[0]));
    return;
  }
}

void check_meshes(const Step& step, Reading& reading) {
  if (!step.over || !reading.all_known() || reading.mesh->pipeline_groups_agree()) return;
  for (const Over::Pick& pick : step.over->picks) {
    if (!is_expert_axis(pick.axis)) continue;
    reading.diagnostics.add(step.places->over,
                            fmt::format("axis \"{}\" is of the expert mesh, whose pipeline groups differ from those of "
                                        "the dense mesh under this \"order\": put \"pp\" last in it",
                                        name_of(pick.axis)));
    return;
  }
}

void check_factor(const Step& step, Reading& reading) {
  // What hangs on the micro-batch is no constant.
  if (step.op != Op::backward || !step.by || step.by->uses_micro_batch()) return;
  try {
    const auto value = step.by->constant(reading.environment());
    if (value && std::holds_alternative<Rational>(*value) && std::get<Rational>(*value).is_zero() &&
        reading.sizes_known()) {
      reading.diagnostics.add(
          step.places->by,
          "\"by\" of a \"backward\" must not be 0: a contribution of 0 cannot be told from one that is "
          "missing");
    }
  } catch (const ExpressionError&) {
    // Found by the walk, on the ranks that evaluate it.
  }
}

/// Reads values of keys into a step, one by one; an `each` has its steps elsewhere.
class StepKeyReader {
 public:
  StepKeyReader(Step& step, const Place& place, bool in_each, Reading& reading)
      : step_(step), in_each_(in_each), reading_(reading) {
    step.place = place;
    step.places = KeyPlaces{place, place, place, place, place, place};
    step.geometry.own().place = place;
  }

  void read(const ObjectKey& row, const Json& value) {
    const std::string_view key = row.name;
    step_.keys.push_back(key);
    if (key == "params") {
      step_.params = read_selectors(value, reading_);
      step_.places.own().params = value.place();
    } else if (key == "over") {
      step_.over = read_over(value, reading_);
      step_.places.own().over = value.place();
    } else if (key == "root") {
      step_.root = read_root(value, reading_);
      step_.places.own().root = value.place();
    } else if (key == "only") {
      step_.only = read_only(value, reading_);
    } else if (key == "geometry") {
      step_.geometry = read_geometry(value, reading_);
    } else if (key == "uses") {
      for (const Json& item : value.items()) {
        check_use(item.text(), item.place(), reading_);
        step_.uses.push_back(item.text());
      }
    } else if (row.type == Type::expression) {
      if (value.is_string()) check_tokens_of_uses(value, reading_);
      if (key == "by") read_expression_into(step_.by, &KeyPlaces::by, false, value);
      if (key == "when") read_expression_into(step_.when, &KeyPlaces::when, true, value);
      if (key == "count") read_expression_into(step_.count, &KeyPlaces::count, true, value);
    } else if (key != "steps") {
      read_plain(key, value);
    }
  }

 private:
  void read_expression_into(std::optional<Expression>& expression, Place KeyPlaces::*place, bool truth,
                            const Json& value) {
    step_.places.own().*place = value.place();
    expression = read_expression(value, {.truth = truth, .in_each = in_each_}, reading_);
  }

  void read_plain(std::string_view key, const Json& value) {
    const auto is = [&](std::string_view word) { return value.text() == word; };
    if (key == "name") step_.name = value.text();
    if (key == "op") step_.op = *op_named(value.text());
    if (key == "reduce") step_.reduction = is("avg") ? Reduction::average : Reduction::sum;
    if (key == "on") step_.on_owned = is("owned");
    if (key == "async") step_.async = value.as_boolean();
    if (key == "buffer" || key == "to") step_.buffer = value.text();
    if (key == "from") step_.from = value.text();
    if (key == "what") step_.what = value.text();
    if (key == "per") step_.per_rank = is("rank");
    if (key == "combine") step_.mean_of_norms = is("mean_of_norms");
    if (key == "for") step_.wait_for = value.text();
  }

  Step& step_;
  bool in_each_;
  Reading& reading_;
};

/// Key by key, as a "set" changes a geometry.
void read_geometry_values(const Json& geometry, Reading& quiet, Edit& edit) {
  const Json* kind = geometry.find("kind");
  for (const Json::Member& member : geometry.members()) {
    const ObjectKey* row = find_key(object_row(Object::geometry), member.key);
    if (row == nullptr) continue;
    const std::string_view key = step_key(fmt::format("geometry.{}", row->name)).name;
    if (member.value.is_null()) {
      edit.removed.push_back(key);
      continue;
    }
    Json alone = Json::object({{"kind", {}, kind != nullptr ? *kind : Json::string(std::string(row->variants))}});
    alone.set(member.key, member.value);
    Step from;
    from.geometry = read_geometry(alone, quiet);
    step_key(key).copy(from, edit.values);
    edit.values.keys.push_back(key);
  }
}

std::vector<Step> read_list(const Json& array, bool in_each, Reading& reading) {
  std::vector<Step> steps;
  for (const Json& object : array.items()) {
    const std::optional<Op> op = read_op(object, reading);
    if (!op) continue;
    const std::string_view name = operation(*op).name;
    const Fields fields(object, Object::step, name, where_of(object, std::string(name)), reading.diagnostics);
    Step step;
    step.op = *op;
    StepKeyReader reader(step, object.place(), in_each, reading);
    for (const Json::Member& member : object.members()) {
      if (fields.find(member.key) != nullptr)
        reader.read(*find_key(object_row(Object::step), member.key), member.value);
    }
    check_step(step, in_each, reading, [&](const char* key) { return object.find(key)->place(); });
    const Json* body = fields.find("steps");
    if (body != nullptr && !(step.op == Op::each && in_each)) step.steps = read_list(*body, true, reading);
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace

void check_step(const Step& step, bool in_each, Reading& reading,
                const std::function<Place(const char* key)>& place_of) {
  const Operation& row = operation(step.op);
  check_meshes(step, reading);
  check_position(step, reading);
  check_root(step, reading);
  check_factor(step, reading);
  if (step.geometry->kind == Geometry::Kind::counts && row.equal_slices) {
    reading.diagnostics.add(place_of("geometry"),
                            fmt::format("\"{0}\" gives every member a slice of one length, and \"counts\" cuts slices "
                                        "of several; \"{0}_v\" takes them",
                                        row.name));
  }
  if (step.op == Op::all_gather && step.on_owned) {
    reading.diagnostics.add(place_of("on"),
                            "\"all_gather\" cannot act on what is owned: it makes every member own all");
  }
  if (step.op == Op::backward && !in_each) {
    reading.diagnostics.add(place_of("op"),
                            "\"backward\" must stand inside an \"each\", which runs it once for each micro-batch");
  }
  if (step.op == Op::each && in_each)
    reading.diagnostics.add(place_of("op"), "an \"each\" must not stand inside another \"each\"");
}

std::vector<Step> read_steps(const Json& array, Reading& reading) { return read_list(array, false, reading); }

void read_values(const std::vector<Json::Member>& members, const Reading& reading, Edit& edit) {
  Reading quiet = reading;
  StepKeyReader reader(edit.values, edit.place, true, quiet);
  for (const Json::Member& member : members) {
    const ObjectKey* row = find_key(object_row(Object::step), member.key);
    if (row == nullptr) continue;
    if (member.value.is_null()) {
      edit.removed.push_back(row->name);
    } else if (check_type(member.value, row->type, row->allowed, quiet.diagnostics)) {
      if (row->type == Type::geometry && edit.action == Edit::Action::set) {
        read_geometry_values(member.value, quiet, edit);
      } else {
        if (row->type == Type::steps) edit.values.steps = read_list(member.value, true, quiet);
        reader.read(*row, member.value);
      }
    }
  }
}

}  // namespace lockstep::scenario
