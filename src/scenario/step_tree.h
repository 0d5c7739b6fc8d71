// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/json.h"
#include "lockstep/schedule.h"

namespace lockstep::scenario {

/// Plain steps as edits change them: a list of steps, of which an `each` has a list of its own. `Content` is a step as
/// it was read, or as a file has it (Json), whatever mistakes it has.
template <typename Content>
struct StepNode {
  Content step;  ///< an `each` without its steps
  bool is_each = false;
  Place body_place;  ///< of the steps of an `each`
  std::vector<StepNode> body;
  std::string iteration;  ///< condition for the one iteration in which an edit put it; "" for all
};

// What a tree needs to know of a step.

/// "" without one.
std::string name_of(const Json& step);
const std::string& name_of(const Step& step);
/// Where the name was written, or the step.
Place place_of_name(const Json& step);
Place place_of_name(const Step& step);
inline const Place& place_of(const Json& step) { return step.place(); }
inline const Place& place_of(const Step& step) { return step.place; }
/// The step that a wait ends; "" for every other step.
std::string waited_by(const Json& step);
const std::string& waited_by(const Step& step);
/// Puts a suffix behind its name, and behind the name of what it waits for, where that is one of `names`.
void rename(Json& step, const std::vector<std::string>& names, const std::string& suffix);
void rename(Step& step, const std::vector<std::string>& names, const std::string& suffix);
/// `step` with `condition` joined to its own "when".
Json with_condition(const Json& step, const std::string& condition, const Place& place);
Step with_condition(const Step& step, const std::string& condition, const Place& place);
StepNode<Json> node_of(const Json& step);
StepNode<Step> node_of(const Step& step);
/// The steps inside, none but for an `each`.
void set_body(Json& step, std::vector<Json> body, const Place& place);
void set_body(Step& step, std::vector<Step> body, const Place& place);

template <typename Content>
std::vector<StepNode<Content>> nodes_of(const std::vector<Content>& steps) {
  std::vector<StepNode<Content>> nodes;
  nodes.reserve(steps.size());
  for (const Content& step : steps) nodes.push_back(node_of(step));
  return nodes;
}

template <typename Content>
std::vector<Content> steps_of(std::vector<StepNode<Content>> nodes);

template <typename Content>
Content step_of(StepNode<Content> node) {
  Content step = std::move(node.step);
  if (node.is_each) set_body(step, steps_of(std::move(node.body)), node.body_place);
  if (node.iteration.empty()) return step;
  return with_condition(step, node.iteration, place_of(step));
}

template <typename Content>
std::vector<Content> steps_of(std::vector<StepNode<Content>> nodes) {
  std::vector<Content> steps;
  steps.reserve(nodes.size());
  for (StepNode<Content>& node : nodes) {
    if (node.is_each || !node.iteration.empty()) {
      steps.push_back(step_of(std::move(node)));
    } else {
      steps.push_back(std::move(node.step));
    }
  }
  return steps;
}

/// All names, nested ones behind that of their `each`.
template <typename Content>
std::vector<std::string> names_in(const std::vector<StepNode<Content>>& nodes) {
  std::vector<std::string> names;
  for (const StepNode<Content>& node : nodes) {
    if (std::string name = name_of(node.step); !name.empty()) names.push_back(std::move(name));
    for (std::string& name : names_in(node.body)) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace lockstep::scenario
