// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/step_tree.h"

#include <algorithm>

#include "src/scenario/edits.h"
#include "src/scenario/fields.h"

namespace lockstep {

namespace {

void collect_names(const std::vector<StepNode>& nodes, std::vector<std::string>& names) {
  for (const StepNode& node : nodes) {
    if (!node.name().empty()) names.push_back(node.name());
    collect_names(node.body, names);
  }
}

void remove_waits_in(std::vector<StepNode>& nodes, const std::vector<std::string>& for_steps) {
  std::erase_if(nodes, [&](const StepNode& node) {
    const Json* op = node.step.find("op");
    const Json* waited = node.step.find("for");
    return op != nullptr && op->is_string() && op->text() == "wait" && waited != nullptr && waited->is_string() &&
           std::find(for_steps.begin(), for_steps.end(), waited->text()) != for_steps.end();
  });
  for (StepNode& node : nodes) remove_waits_in(node.body, for_steps);
}

}  // namespace

std::string StepNode::name() const {
  const Json* name = step.find("name");
  return name != nullptr && name->is_string() ? name->text() : "";
}

StepTree::StepTree(const Json& steps) : place_(steps.place()) {
  for (const Json& step : steps.items()) steps_.push_back(node_of(step));
}

StepNode StepTree::node_of(const Json& step) {
  StepNode node{step, std::nullopt, {}, ""};
  const Json* body = step.find("steps");
  if (body == nullptr || !body->is_array()) return node;
  node.body_place = body->place();
  for (const Json& inner : body->items()) node.body.push_back(node_of(inner));
  node.step.remove("steps");
  return node;
}

Json StepTree::json_of(const StepNode& node) {
  Json step = node.step;
  if (node.is_each()) {
    std::vector<Json> body;
    for (const StepNode& inner : node.body) body.push_back(json_of(inner));
    step.set("steps", Json::array(std::move(body), *node.body_place));
  }
  return node.iteration.empty() ? step : with_condition(step, node.iteration, step.place());
}

Json StepTree::json() const {
  std::vector<Json> steps;
  for (const StepNode& node : steps_) steps.push_back(json_of(node));
  return Json::array(std::move(steps), place_);
}

std::optional<StepTree::Position> StepTree::find(const std::string& name) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].name() == name) return Position{nullptr, i};
    std::vector<StepNode>& body = steps_[i].body;
    for (std::size_t j = 0; j < body.size(); ++j) {
      if (body[j].name() == name) return Position{&steps_[i], j};
    }
  }
  return std::nullopt;
}

std::vector<std::string> StepTree::names() const {
  std::vector<std::string> names;
  collect_names(steps_, names);
  return names;
}

std::vector<std::string> StepTree::names_in(const StepNode& node) {
  std::vector<std::string> names;
  collect_names({node}, names);
  return names;
}

void StepTree::remove_waits(const std::vector<std::string>& for_steps) { remove_waits_in(steps_, for_steps); }

}  // namespace lockstep
