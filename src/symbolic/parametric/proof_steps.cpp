// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/proof_steps.h"

#include <algorithm>

namespace lockstep::parametric {

namespace {

std::string coordinate_name(const Level& level, int coordinate) {
  if (coordinate == 0) return "first";
  return coordinate == level.size - 1 ? "last" : std::to_string(coordinate);
}

/// "rank = owner 1 | contributor": the names of one axis, equal ones together.
std::string relation(const Level& level, int partition) {
  const Partition& blocks = level.partitions.at(partition);
  std::vector<std::string> texts;
  const auto add = [&](int name, const std::string& word) {
    const std::size_t block = blocks[static_cast<std::size_t>(name)];
    if (texts.size() <= block) texts.resize(block + 1);
    texts[block] += (texts[block].empty() ? "" : " = ") + word;
  };
  add(rank_name, "rank");
  add(contributor_name, "contributor");
  for (const int owner : level.owners) add(level.owner_name(owner), "owner " + std::to_string(owner + 1));
  for (const int constant : level.constants) add(level.constant_name(constant), coordinate_name(level, constant));
  std::string text;
  for (const std::string& block : texts) text += (text.empty() ? "" : " | ") + block;
  return text;
}

Json text(const std::string& words) { return Json::string(words); }
Json number(int value) { return Json::number(std::to_string(value)); }

/// What a function is where it is not 0: the relations along each axis on which it depends, and the value.
Json function(const ClassResult& result, int diagram) {
  std::vector<Json> rows;
  const Diagrams& diagrams = *result.diagrams;
  diagrams.visit(diagram, false, [&](const Diagrams::Path& path) {
    Json row = Json::object();
    for (std::size_t i = 0; i < path.partitions.size(); ++i) {
      if (path.partitions[i] < 0) continue;
      const Level& level = diagrams.at_level(static_cast<int>(i));
      row.set(lockstep::name_of(level.axis), text(relation(level, path.partitions[i])));
    }
    row.set("value", text(result.diagrams->polynomials().to_string(path.value)));
    rows.push_back(row);
    return true;
  });
  return Json::array(std::move(rows));
}

std::string atom_name(const Specimen& specimen, const ClassResult& result, const Atom& atom) {
  if (!atom.leftover.empty()) return atom.leftover + (atom.per_rank ? " of each rank" : "");
  const Schedule& schedule = *specimen.scenario->schedule;
  const Logical& logical = schedule.model.logicals()[static_cast<std::size_t>(result.members->logicals.front())];
  const SiteUse& use = logical.uses[static_cast<std::size_t>(atom.site_use)];
  std::string name = schedule.model.parameters()[static_cast<std::size_t>(use.parameter)].name + "." + use.use;
  if (schedule.batch.steps() > 1) name += ", step " + std::to_string(atom.optimizer_step);
  if (atom.micro_batch >= 0) name += ", micro-batch " + std::to_string(atom.micro_batch);
  return name;
}

Json of_class(const Specimen& specimen, const ClassResult& result) {
  const Schedule& schedule = *specimen.scenario->schedule;
  Json one = Json::object();
  std::vector<Json> parameters;
  for (const int logical : result.members->logicals)
    parameters.push_back(text(schedule.model.logicals()[static_cast<std::size_t>(logical)].name));
  one.set("parameters", Json::array(std::move(parameters)));
  std::vector<Json> axes;
  for (const Level& level : result.diagrams->levels()) {
    Json axis = Json::object();
    axis.set("axis", text(std::string(lockstep::name_of(level.axis))));
    axis.set("size", level.open ? text(std::string(lockstep::name_of(level.axis))) : number(level.size));
    if (level.open) axis.set("least", number(level.least));
    axes.push_back(axis);
  }
  one.set("axes", Json::array(std::move(axes)));
  std::vector<Json> owners;
  for (const Owner& owner : result.owners) owners.push_back(text("slice of " + owner.step->name));
  if (!owners.empty()) one.set("owners", Json::array(std::move(owners)));
  std::vector<Json> steps;
  for (const Snapshot& snapshot : result.snapshots) {
    Json step = Json::object();
    step.set("step", text(snapshot.step));
    if (schedule.batch.steps() > 1) step.set("optimizer_step", number(snapshot.optimizer_step));
    if (snapshot.any_micro_batch) step.set("micro_batch", text("any"));
    if (!snapshot.any_micro_batch && snapshot.micro_batch >= 0) step.set("micro_batch", number(snapshot.micro_batch));
    Json buffers = Json::object();
    for (const auto& [name, values] : snapshot.buffers) {
      Json buffer = Json::object();
      for (std::size_t i = 0; i < values.size(); ++i)
        buffer.set(atom_name(specimen, result, result.atoms[i]), function(result, values[i]));
      buffers.set(name, buffer);
    }
    step.set("holds", buffers);
    step.set("owns", function(result, snapshot.owned));
    steps.push_back(step);
  }
  one.set("steps", Json::array(std::move(steps)));
  Json expected = Json::object();
  for (std::size_t i = 0; i < result.references.size(); ++i)
    expected.set(atom_name(specimen, result, result.atoms[i]), function(result, result.references[i]));
  one.set("expected", expected);
  one.set("right", Json::boolean(result.cells.empty()));
  return one;
}

}  // namespace

Json proof_steps(const std::vector<Case>& cases) {
  std::vector<Json> list;
  for (const Case& one : cases) {
    Json entry = Json::object();
    entry.set("sizes", text(describe(one)));
    if (one.limit) entry.set("undecided", text(one.limit->why));
    std::vector<Json> classes;
    for (const Specimen& specimen : one.specimens) {
      for (const ClassResult& result : specimen.results) classes.push_back(of_class(specimen, result));
    }
    entry.set("classes", Json::array(std::move(classes)));
    list.push_back(entry);
  }
  return Json::array(std::move(list));
}

}  // namespace lockstep::parametric
