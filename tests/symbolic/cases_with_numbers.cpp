// SPDX-License-Identifier: Apache-2.0
#include "tests/symbolic/cases_with_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "src/base/at.h"

namespace lockstep::test {

using parametric::Case;
using parametric::Class;
using parametric::ClassResult;
using parametric::OutOfReach;
using parametric::Representative;
using parametric::StepSelections;
using parametric::World;

namespace {

Environment sizes_of(const Schedule& schedule) {
  Environment environment;
  environment.mesh = &schedule.mesh;
  environment.counts = &schedule.batch;
  return environment;
}

/// The expression with a number for each name that has one for all ranks and micro-batches.
Expression with_values(const Expression& expression, const Schedule& schedule) {
  std::map<std::string, ExpressionValue, std::less<>> values;
  for (const std::string& name : expression.names()) {
    if (name == "n") continue;  // of a geometry: the size of its group
    try {
      if (const auto value = Expression::parse(name).constant(sizes_of(schedule))) values.emplace(name, *value);
    } catch (const ExpressionError&) {
      // It has a meaning in one optimizer step alone.
    }
  }
  return expression.substitute(values);
}

void put_numbers(std::vector<Step>& steps, const Schedule& schedule) {
  const auto put = [&](std::optional<Expression>& expression) {
    if (expression) expression = with_values(*expression, schedule);
  };
  for (Step& step : steps) {
    put(step.by);
    put(step.when);
    put(step.count);
    // Nothing is what "true" says.
    const auto is_true = [](const std::optional<Expression>& expression) {
      return expression && *expression == Expression(ExpressionValue(true));
    };
    if (is_true(step.when)) step.when.reset();
    if (is_true(step.count)) step.count.reset();
    Geometry& geometry = step.geometry.own();
    put(geometry.align);
    put(geometry.size);
    put(geometry.align_bucket);
    geometry.align_parameter = with_values(geometry.align_parameter, schedule);
    put_numbers(step.steps, schedule);
  }
}

std::string text_of(const std::vector<Step>& steps) {
  std::string text;
  for (const Step& step : steps) text += write_json(to_json(step)) + "\n";
  return text;
}

void flatten(const std::vector<Step>& steps, std::vector<const Step*>& all) {
  for (const Step& step : steps) {
    all.push_back(&step);
    flatten(step.steps, all);
  }
}

/// The steps of a case, its loss and its batch, read as a file that gives the numbers.
void compare_steps(const Representative& representative, const Sizes& sizes, const Scenario& plain,
                   const std::string& file, Comparison& found) {
  Json document = with_numbers(representative.scenario->resolved, sizes);
  const Json written = to_json(*plain.schedule);
  document.set("model", *written.find("model"));
  // A framework may derive these from sizes, and where no step speaks of the expert mesh nothing hangs on them.
  Json layout = *document.find("layout");
  for (const auto& [axis, key] :
       {std::pair(Axis::etp, "etp"), {Axis::dp_shard, "dp_shard"}, {Axis::dp_replicate, "dp_replicate"}}) {
    if (sizes.axes.contains(axis) || sizes.axes.contains(Axis::edp)) continue;
    layout.remove(key);
    if (const Json* value = written.find("layout")->find(key)) layout.set(key, *value);
  }
  document.set("layout", layout);
  Scenario put;
  try {
    put = read_scenario(document, file);
  } catch (const InputError& error) {
    found.differences.push_back("the case with numbers put in is refused: " + error.diagnostics().front().message);
    return;
  }
  std::vector<Step> mine = put.schedule->steps, others = plain.schedule->steps;
  put_numbers(mine, *plain.schedule);
  put_numbers(others, *plain.schedule);
  if (mine != others)
    found.differences.push_back(
        fmt::format("steps: of the case\n{}and of the file\n{}", text_of(mine), text_of(others)));
  if (put.schedule->mesh.layout() != plain.schedule->mesh.layout())
    found.differences.push_back(fmt::format("layout: of the case {} and of the file {}",
                                            write_json(*document.find("layout")), write_json(*written.find("layout"))));
  if (!(put.schedule->batch == plain.schedule->batch)) found.differences.push_back("the batch is another");
  if (put.schedule->result != plain.schedule->result) found.differences.push_back("the optimizer reads another buffer");
  std::vector<const Step*> all;
  flatten(mine, all);
  found.steps += static_cast<int>(all.size());
}

/// Every condition by which the file came to the steps of the case comes out as it did there.
void compare_guards(const Representative& representative, const Scenario& plain, Comparison& found) {
  for (const Expression& guard : representative.scenario->decided_conditions) {
    ++found.guards;
    if (guard.truth(sizes_of(*representative.scenario->schedule)) != guard.truth(sizes_of(*plain.schedule)))
      found.differences.push_back(fmt::format("\"{}\" does not come out as at {}", guard.to_string(),
                                              lockstep::describe(representative.sizes)));
  }
}

/// A parameter without its number among those of its kind, without the stage on which it lies, which stages share among
/// them, and without its extents.
std::string placement_of(const Parameter& parameter) {
  Parameter moved = parameter;
  if (moved.stage) moved.stage = 0;
  moved.shape.assign(moved.shape.size(), 1);
  std::string name;
  for (const char c : moved.name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit || name.empty() || name.back() != '#') name += digit ? '#' : c;
  }
  moved.name = name;
  return write_json(to_json(moved));
}

/// A rank's extents, where the axes that cut a dimension divide it.
std::vector<Rational> local_shape(const Parameter& parameter, const Schedule& schedule) {
  std::vector<Rational> extents(parameter.shape.begin(), parameter.shape.end());
  for (const Shard& shard : parameter.shard)
    extents[at(shard.dim)] = extents[at(shard.dim)] / Rational(schedule.mesh.size(shard.axis));
  return extents;
}

void compare_parameters(const Case& one, const Sizes& sizes, const Scenario& plain, Comparison& found) {
  struct Known {
    const Parameter* parameter = nullptr;
    const Schedule* schedule = nullptr;
  };
  std::map<std::string, Known> by_name;
  std::set<std::string> kinds;
  for (const Representative& representative : one.representatives) {
    const Schedule& schedule = *representative.scenario->schedule;
    for (const Parameter& parameter : schedule.model.parameters()) {
      by_name.emplace(parameter.name, Known{&parameter, &schedule});
      kinds.insert(placement_of(parameter));
    }
  }
  const bool one_depth = !one.least.contains(Axis::pp);
  for (const Parameter& parameter : plain.schedule->model.parameters()) {
    ++found.parameters;
    const auto same_name = by_name.find(parameter.name);
    if (same_name == by_name.end()) {
      if (!kinds.contains(placement_of(parameter)))
        found.differences.push_back(fmt::format("no parameter of the case is placed as \"{}\"", parameter.name));
      continue;
    }
    const auto& [known, schedule] = same_name->second;
    if (placement_of(*known) != placement_of(parameter))
      found.differences.push_back(fmt::format("\"{}\" is {} in the case and {} at {}", parameter.name,
                                              placement_of(*known), placement_of(parameter),
                                              lockstep::describe(sizes)));
    // Of experts that each rank lists by itself the model file has as many rows as ranks hold.
    if (known->shape != parameter.shape && local_shape(*known, *schedule) != local_shape(parameter, *plain.schedule))
      found.differences.push_back(fmt::format("\"{}\" has another shape than in the case", parameter.name));
    if (one_depth && known->stage != parameter.stage)
      found.differences.push_back(fmt::format("\"{}\" lies on another stage", parameter.name));
  }
}

/// What decides of a parameter what its gradients are, but for its shape and the stage.
std::string behaviour_of(const Parameter& parameter) {
  Parameter bare;
  bare.name = "#";
  bare.shape = {1};
  bare.shard = parameter.shard;
  for (Shard& shard : bare.shard) shard.dim = 0;
  bare.partial = parameter.partial;
  bare.dispatch = parameter.dispatch;
  bare.uses = parameter.uses;
  bare.micro_batches = parameter.micro_batches;
  bare.only = parameter.only;
  return write_json(to_json(bare));
}

/// By stage that holds it: what the stage is called, and which steps take the parameter there.
std::set<std::string> taken_by(const World& world, const StepSelections& selections, int logical) {
  std::set<std::string> found;
  const Schedule& schedule = world.schedule();
  std::vector<const Step*> steps;
  flatten(schedule.steps, steps);
  for (std::size_t stage = 0; stage < world.ranks_of_stages().size(); ++stage) {
    const int rank = world.ranks_of_stages()[stage];
    const int buffer = schedule.model.buffer_of(rank, logical);
    if (buffer < 0) continue;
    std::string text = selections.stage_name(static_cast<int>(stage)) + ":";
    const LocalBuffer& held = schedule.model.local(rank).buffers[at(buffer)];
    for (const int parameter : held.parameters) text += behaviour_of(schedule.model.parameters()[at(parameter)]);
    for (const Step* step : steps) text += step->params.chooses(schedule.model, held) ? " 1" : " 0";
    found.insert(text);
  }
  return found;
}

bool held_by_several(const World& world, int logical) {
  const auto holds = [&](int rank) { return world.schedule().model.buffer_of(rank, logical) >= 0; };
  return std::count_if(world.ranks_of_stages().begin(), world.ranks_of_stages().end(), holds) > 1;
}

struct Followed {
  const Representative* at = nullptr;
  const ClassResult* as = nullptr;
};

/// What of a case stands for some parameters: by key, and where many stages hold them, which the key counts, by what is
/// done on each of these.
Followed followed(const Case& one, const Class& members, const World& world, const StepSelections& selections) {
  Followed alike;
  const int logical = members.logicals.front();
  const bool by_stages = held_by_several(world, logical);
  for (const Representative& representative : one.representatives) {
    for (const ClassResult& result : representative.results) {
      if (result.members->key == members.key) return {&representative, &result};
      if (by_stages && taken_by(*representative.world, *representative.selections, result.members->logicals.front()) ==
                           taken_by(world, selections, logical))
        alike = {&representative, &result};
    }
  }
  return alike;
}

/// Each parameter behaves as one that went through the case.
void compare_classes(const Case& one, const Scenario& plain, Comparison& found) {
  const World world(*plain.schedule, {});
  const StepSelections selections(world);
  const Model& model = plain.schedule->model;
  for (const Class& members : selections.classes()) {
    ++found.classes;
    const Followed same = followed(one, members, world, selections);
    if (same.as == nullptr) {
      found.differences.push_back(fmt::format("\"{}\" behaves as no parameter of the case",
                                              model.logicals()[at(members.logicals.front())].name));
      continue;
    }
    const std::set<std::string> expected =
        taken_by(*same.at->world, *same.at->selections, same.as->members->logicals.front());
    for (const int logical : members.logicals) {
      if (taken_by(world, selections, logical) == expected) continue;
      found.differences.push_back(fmt::format("\"{}\" is placed otherwise, or chosen by other steps, than in the case",
                                              model.logicals()[at(logical)].name));
      break;
    }
  }
}

}  // namespace

/// A road of its own: what a user would write.
Json with_numbers(const Json& document, const Sizes& sizes) {
  Json changed = document;
  Json layout = document.find("layout") != nullptr ? *document.find("layout") : Json::object();
  for (const auto& [axis, size] : sizes.axes) layout.set(name_of(axis), Json::number(std::to_string(size)));
  const auto size_of = [&](Axis axis) { return sizes.axes.at(axis); };
  if (sizes.axes.contains(Axis::dp_shard)) layout.remove("dp");
  if (sizes.axes.contains(Axis::edp)) {
    for (const char* derived : {"dp_shard", "dp_replicate"}) layout.remove(derived);
    layout.set("dp", Json::number(std::to_string(size_of(Axis::ep) * size_of(Axis::edp))));
    if (layout.find("etp") != nullptr) layout.set("etp", Json::number(std::to_string(size_of(Axis::tp))));
  }
  changed.set("layout", layout);
  if (sizes.micro_batches) {
    Json batch = document.find("batch") != nullptr ? *document.find("batch") : Json::object();
    batch.set("micro_batches", Json::number(std::to_string(*sizes.micro_batches)));
    changed.set("batch", batch);
  }
  changed.remove("expect");
  return changed;
}

Comparison compare_with_numbers(const Case& one, const Sizes& sizes, const Scenario& plain, const std::string& file) {
  Comparison found;
  for (const Representative& representative : one.representatives) {
    compare_steps(representative, sizes, plain, file, found);
    compare_guards(representative, plain, found);
  }
  compare_parameters(one, sizes, plain, found);
  try {
    compare_classes(one, plain, found);
  } catch (const OutOfReach& limit) {
    found.out_of_reach = limit.what();
  }
  return found;
}

}  // namespace lockstep::test
