// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/scenario/edits.h"
#include "src/scenario/step_tree.h"

namespace lockstep::scenario {

/// Plain steps under edit, as a file has them or as they were read. An edit that cannot be applied adds a mistake and
/// changes nothing.
template <typename Content>
class StepEdits {
 public:
  /// `absent` names steps that are not there, with the reason.
  StepEdits(const std::vector<Content>& steps, std::map<std::string, std::string> absent, Diagnostics& diagnostics)
      : StepEdits(nodes_of(steps), std::move(absent), diagnostics) {}
  StepEdits(std::vector<StepNode<Content>> steps, std::map<std::string, std::string> absent, Diagnostics& diagnostics)
      : steps_(std::move(steps)), absent_(std::move(absent)), diagnostics_(diagnostics) {}

  /// `inserted` is the new step of an edit that inserts; `set` changes a step as one that sets says.
  template <typename Set>
  void apply(const Edit& edit, const Content& inserted, const Set& set) {
    switch (edit.action) {
      case Edit::Action::drop:
        return drop(edit.step);
      case Edit::Action::duplicate:
        return duplicate(edit.step);
      case Edit::Action::move:
        return move(edit);
      case Edit::Action::insert:
        return insert(edit, inserted);
      case Edit::Action::set:
        return change(edit, set);
      case Edit::Action::parameter:
        return;
    }
  }

  /// What the edits made of them. No edit may follow.
  std::vector<Content> take_steps() { return steps_of(std::move(steps_)); }

 private:
  using Node = StepNode<Content>;

  /// A step: `list` is the top level, or that of the `each` that it stands in.
  struct Position {
    std::vector<Node>* list;
    std::size_t index;
    Node& node() const { return (*list)[index]; }
    void insert(Node node, bool after) const {
      list->insert(list->begin() + static_cast<std::ptrdiff_t>(index + (after ? 1 : 0)), std::move(node));
    }
    void remove() const { list->erase(list->begin() + static_cast<std::ptrdiff_t>(index)); }
  };

  std::optional<Position> named(const std::string& name, std::vector<Node>& list) const {
    for (std::size_t index = 0; index < list.size(); ++index) {
      if (name_of(list[index].step) == name) return Position{&list, index};
      if (const auto inside = named(name, list[index].body)) return inside;
    }
    return std::nullopt;
  }

  std::optional<Position> find(const EditTarget& target) {
    const auto found = named(target.name, steps_);
    if (found) {
      if (target.iteration.empty() || found->list != &steps_ || found->node().is_each) return found;
      diagnostics_.add(target.place, fmt::format("step \"{}\" is not inside an \"each\", so it has no iteration {}",
                                                 target.name, target.iteration));
      return std::nullopt;
    }
    const auto absent = absent_.find(target.name);
    if (absent != absent_.end()) {
      diagnostics_.add(target.place,
                       fmt::format("step \"{}\" is not in the schedule: {}", target.name, absent->second));
      return std::nullopt;
    }
    const std::vector<std::string> names = names_in(steps_);
    const std::string near = did_you_mean(target.name, names);
    diagnostics_.add(
        target.place,
        fmt::format("no step is named \"{}\"{}", target.name,
                    near.empty() && !names.empty() ? "; the steps are " + quoted_alternatives(names) : near));
    return std::nullopt;
  }

  void drop(const EditTarget& target) {
    const auto position = find(target);
    if (!position) return;
    Node& node = position->node();
    if (!target.iteration.empty()) {
      const std::string others = iteration_condition(target, false);
      if (!node.is_each) node.step = with_condition(node.step, others, target.place);
      for (Node& inner : node.body) inner.step = with_condition(inner.step, others, target.place);
      return;
    }
    const std::vector<std::string> names = names_in<Content>({node});
    position->remove();
    remove_waits(steps_, names);
    for (const std::string& name : names) absent_[name] = "an earlier edit dropped it";
  }

  void duplicate(const EditTarget& target) {
    const auto position = find(target);
    if (!position) return;
    Node copy = position->node();
    if (!target.iteration.empty()) {
      if (copy.is_each) {
        diagnostics_.add(target.place,
                         fmt::format("\"{}\" is an \"each\": duplicate the steps inside it", target.name));
        return;
      }
      copy.iteration = iteration_condition(target, true);
    }
    const std::vector<std::string> names = names_in(steps_);
    const std::vector<std::string> inside = names_in<Content>({copy});
    int number = 2;
    const auto taken = [&](const std::string& name) {
      return std::find(names.begin(), names.end(), fmt::format("{}.{}", name, number)) != names.end();
    };
    while (std::any_of(inside.begin(), inside.end(), taken)) ++number;
    rename_all(copy, inside, fmt::format(".{}", number));
    position->insert(std::move(copy), true);
  }

  /// With nothing in flight they would do nothing.
  static void remove_waits(std::vector<Node>& nodes, const std::vector<std::string>& for_steps) {
    std::erase_if(nodes, [&](const Node& node) {
      const std::string& waited = waited_by(node.step);
      return !waited.empty() && std::find(for_steps.begin(), for_steps.end(), waited) != for_steps.end();
    });
    for (Node& node : nodes) remove_waits(node.body, for_steps);
  }

  /// Gives a copy and what is inside it names of their own; its waits are for its own steps.
  static void rename_all(Node& node, const std::vector<std::string>& names, const std::string& suffix) {
    rename(node.step, names, suffix);
    for (Node& inner : node.body) rename_all(inner, names, suffix);
  }

  /// Puts `node` in front of or behind the target; a mistake is added where that is not there.
  void place(Node node, const EditTarget& target, bool after) {
    const auto position = find(target);
    if (!position) return;
    Node& found = position->node();
    // Beside a step that is in one iteration only, it is in that one too.
    if (!found.iteration.empty()) node.iteration = found.iteration;
    if (!target.iteration.empty()) node.iteration = iteration_condition(target, true);
    if (!target.iteration.empty() && found.is_each) {
      found.body.insert(after ? found.body.end() : found.body.begin(), std::move(node));
      return;
    }
    position->insert(std::move(node), after);
  }

  void move(const Edit& edit) {
    const auto position = find(edit.step);
    const auto destination = find(edit.beside);
    if (!position || !destination) return;
    Node node = position->node();
    const std::vector<std::string> inside = names_in<Content>({node});
    const std::string &name = edit.step.name, &other = edit.beside.name;
    if (std::find(inside.begin(), inside.end(), other) != inside.end()) {
      diagnostics_.add(edit.beside.place,
                       other == name ? fmt::format("step \"{}\" cannot be moved relative to itself", name)
                                     : fmt::format("step \"{}\" is inside \"{}\" and moves with it", other, name));
      return;
    }
    if (position->list != destination->list) node.iteration.clear();
    position->remove();
    place(std::move(node), edit.beside, edit.after);
  }

  void insert(const Edit& edit, const Content& inserted) {
    Node node = node_of(inserted);
    const std::vector<std::string> names = names_in(steps_);
    for (const std::string& name : names_in<Content>({node})) {
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;
      diagnostics_.add(place_of_name(inserted), fmt::format("there is a step \"{}\" already", name));
      return;
    }
    place(std::move(node), edit.beside, edit.after);
  }

  template <typename Set>
  void change(const Edit& edit, const Set& set) {
    const auto position = find(edit.step);
    if (!position) return;
    Node& node = position->node();
    std::string iteration = std::exchange(node.iteration, "");
    if (edit.changes("steps")) {
      Content step = step_of(node);
      set(step);
      node = node_of(step);
    } else {
      set(node.step);
    }
    node.iteration = std::move(iteration);
  }

  std::vector<Node> steps_;
  std::map<std::string, std::string> absent_;
  Diagnostics& diagnostics_;
};

}  // namespace lockstep::scenario
