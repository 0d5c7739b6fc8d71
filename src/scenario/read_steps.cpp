// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/operation.h"
#include "src/base/counted.h"
#include "src/scenario/other_words.h"
#include "src/scenario/reading.h"

namespace lockstep {

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

void check_tokens_of_uses(const Json& value, Reading& reading) {
  const std::string& text = value.text();
  constexpr std::string_view word = "tokens.";
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t begin = at + word.size();
    std::size_t end = begin;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) ++end;
    check_use(text.substr(begin, end - begin), inside_string(value, begin, end - begin), reading);
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
        step.root_place,
        fmt::format("\"root\" must be one member of each group, but {} of the {} of the group of rank {} "
                    "have these coordinates",
                    found == 0 ? "none" : std::to_string(found), counted(members.size(), "member"), members[0]));
    return;
  }
}

void check_backward(const Step& step, const Json& object, bool in_each, Reading& reading) {
  if (!in_each) {
    reading.diagnostics.add(object.find("op")->place(),
                            fmt::format("\"backward\" must stand inside an \"each\", which runs it "
                                        "once for each micro-batch"));
  }
  if (!step.by) return;
  try {
    const auto value = step.by->constant(reading.environment());
    if (value && std::holds_alternative<Rational>(*value) && std::get<Rational>(*value).is_zero() &&
        reading.sizes_known()) {
      reading.diagnostics.add(
          step.by_place,
          "\"by\" of a \"backward\" must not be 0: a contribution of 0 cannot be told from one that is "
          "missing");
    }
  } catch (const ExpressionError&) {
    // Found by the walk, on the ranks that evaluate it.
  }
}

class StepReader {
 public:
  StepReader(const Json& object, Op op, bool in_each, Reading& reading)
      : object_(object),
        fields_(object, Object::step, operation(op).name, where_of(object, std::string(operation(op).name)),
                reading.diagnostics),
        in_each_(in_each),
        reading_(reading) {
    step_.op = op;
    step_.place = object.place();
  }

  Step read() {
    step_.name = fields_.text("name");
    read_where();
    read_group();
    step_.by = expression("by", false, step_.by_place);
    step_.count = expression("count", true, step_.count_place);
    if (const Json* geometry = fields_.find("geometry")) {
      step_.geometry = read_geometry(*geometry, reading_);
      if (step_.geometry.kind == Geometry::Kind::counts && operation(step_.op).equal_slices) {
        reading_.diagnostics.add(geometry->place(),
                                 fmt::format("\"{0}\" gives every member a slice of one length, and "
                                             "\"counts\" cuts slices of several; \"{0}_v\" takes them",
                                             operation(step_.op).name));
      }
    } else {
      step_.geometry.place = object_.place();
    }
    step_.on_owned = fields_.text("on") == "owned";
    if (step_.op == Op::all_gather && step_.on_owned) {
      reading_.diagnostics.add(fields_.find("on")->place(),
                               "\"all_gather\" cannot act on what is owned: it makes every member own all");
    }
    step_.async = fields_.boolean("async");
    step_.buffer = fields_.text(step_.op == Op::copy || step_.op == Op::accumulate ? "to" : "buffer", "grad");
    step_.from = fields_.text("from");
    step_.what = fields_.text("what");
    step_.per_rank = fields_.text("per") == "rank";
    step_.mean_of_norms = fields_.text("combine") == "mean_of_norms";
    step_.wait_for = fields_.text("for");
    read_uses();
    if (step_.op == Op::backward) check_backward(step_, object_, in_each_, reading_);
    return std::move(step_);
  }

  /// The steps of an `each`, if this is one.
  const Json* body() const { return fields_.find("steps"); }

 private:
  void read_where() {
    const Json* params = fields_.find("params");
    step_.params_place = params != nullptr ? params->place() : object_.place();
    if (params != nullptr) step_.params = read_selectors(*params, reading_);
    step_.when = expression("when", true, step_.when_place);
    if (const Json* only = fields_.find("only")) step_.only = read_only(*only, reading_);
  }

  void read_group() {
    step_.over_place = step_.root_place = object_.place();
    if (const Json* over = fields_.find("over")) {
      step_.over = read_over(*over, reading_);
      step_.over_place = over->place();
      check_meshes();
    }
    step_.reduction = fields_.text("reduce") == "avg" ? Reduction::average : Reduction::sum;
    if (const Json* root = fields_.find("root")) {
      step_.root = read_root(*root, step_.over, reading_);
      step_.root_place = root->place();
      check_root(step_, reading_);
    }
  }

  void check_meshes() {
    if (!reading_.all_known() || reading_.mesh->pipeline_groups_agree()) return;
    for (const Over::Pick& pick : step_.over->picks) {
      if (!is_expert_axis(pick.axis)) continue;
      reading_.diagnostics.add(
          step_.over_place, fmt::format("axis \"{}\" is of the expert mesh, whose pipeline groups differ from those of "
                                        "the dense mesh under this \"order\": put \"pp\" last in it",
                                        name_of(pick.axis)));
      return;
    }
  }

  void read_uses() {
    const Json* uses = fields_.find("uses");
    if (uses == nullptr) return;
    for (const Json& item : uses->items()) {
      check_use(item.text(), item.place(), reading_);
      step_.uses.push_back(item.text());
    }
  }

  std::optional<Expression> expression(std::string_view key, bool truth, Place& place) {
    place = object_.place();
    const Json* value = fields_.find(key);
    if (value == nullptr) return std::nullopt;
    place = value->place();
    if (value->is_string()) check_tokens_of_uses(*value, reading_);
    return read_expression(*value, {.truth = truth, .in_each = in_each_}, reading_);
  }

  const Json& object_;
  Fields fields_;
  bool in_each_;
  Reading& reading_;
  Step step_;
};

std::vector<Step> read_list(const Json& array, bool in_each, Reading& reading) {
  std::vector<Step> steps;
  for (const Json& object : array.items()) {
    const std::optional<Op> op = read_op(object, reading);
    if (!op) continue;
    StepReader reader(object, *op, in_each, reading);
    Step step = reader.read();
    if (step.op == Op::each && in_each) {
      reading.diagnostics.add(object.find("op")->place(), "an \"each\" must not stand inside another \"each\"");
    } else if (const Json* body = reader.body()) {
      step.steps = read_list(*body, true, reading);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace

std::vector<Step> read_steps(const Json& array, Reading& reading) { return read_list(array, false, reading); }

}  // namespace lockstep
