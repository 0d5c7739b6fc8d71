// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/scenario/edits.h"
#include "src/scenario/step_tree.h"

namespace lockstep {

/// Plain steps under edit, as a file has them or as they were read. An edit that cannot be applied adds a mistake and
/// changes nothing.
template <typename Content>
class StepEdits {
 public:
  /// `absent` names steps that are not there, with the reason.
  StepEdits(const std::vector<Content>& steps, std::map<std::string, std::string> absent, Diagnostics& diagnostics)
      : tree_(steps), absent_(std::move(absent)), diagnostics_(diagnostics) {}

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

  std::vector<Content> steps() const { return tree_.steps(); }

 private:
  using Tree = StepTree<Content>;
  using Node = typename Tree::Node;
  using Position = typename Tree::Position;

  std::optional<Position> find(const EditTarget& target) {
    const auto found = tree_.find(target.name);
    if (found) {
      if (target.iteration.empty() || found->parent != nullptr || tree_.at(*found).is_each) return found;
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
    const std::vector<std::string> names = tree_.names();
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
    Node& node = tree_.at(*position);
    if (!target.iteration.empty()) {
      const std::string others = iteration_condition(target, false);
      if (!node.is_each) node.step = with_condition(node.step, others, target.place);
      for (Node& inner : node.body) inner.step = with_condition(inner.step, others, target.place);
      return;
    }
    const std::vector<std::string> names = names_in(node);
    tree_.remove(*position);
    tree_.remove_waits(names);
    for (const std::string& name : names) absent_[name] = "an earlier edit dropped it";
  }

  void duplicate(const EditTarget& target) {
    const auto position = find(target);
    if (!position) return;
    Node copy = tree_.at(*position);
    if (!target.iteration.empty()) {
      if (copy.is_each) {
        diagnostics_.add(target.place,
                         fmt::format("\"{}\" is an \"each\": duplicate the steps inside it", target.name));
        return;
      }
      copy.iteration = iteration_condition(target, true);
    }
    const std::vector<std::string> names = tree_.names();
    const std::vector<std::string> inside = names_in(copy);
    int number = 2;
    const auto taken = [&](const std::string& name) {
      return std::find(names.begin(), names.end(), fmt::format("{}.{}", name, number)) != names.end();
    };
    while (std::any_of(inside.begin(), inside.end(), taken)) ++number;
    rename_all(copy, inside, fmt::format(".{}", number));
    tree_.insert({position->parent, position->index + 1}, std::move(copy));
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
    Node& found = tree_.at(*position);
    // Beside a step that is in one iteration only, it is in that one too.
    if (!found.iteration.empty()) node.iteration = found.iteration;
    if (!target.iteration.empty()) node.iteration = iteration_condition(target, true);
    if (!target.iteration.empty() && found.is_each) {
      found.body.insert(after ? found.body.end() : found.body.begin(), std::move(node));
      return;
    }
    tree_.insert({position->parent, position->index + (after ? 1 : 0)}, std::move(node));
  }

  void move(const Edit& edit) {
    const auto position = find(edit.step);
    const auto destination = find(edit.beside);
    if (!position || !destination) return;
    Node node = tree_.at(*position);
    const std::vector<std::string> inside = names_in(node);
    const std::string &name = edit.step.name, &other = edit.beside.name;
    if (std::find(inside.begin(), inside.end(), other) != inside.end()) {
      diagnostics_.add(edit.beside.place,
                       other == name ? fmt::format("step \"{}\" cannot be moved relative to itself", name)
                                     : fmt::format("step \"{}\" is inside \"{}\" and moves with it", other, name));
      return;
    }
    if (position->parent != destination->parent) node.iteration.clear();
    tree_.remove(*position);
    place(std::move(node), edit.beside, edit.after);
  }

  void insert(const Edit& edit, const Content& inserted) {
    Node node = node_of(inserted);
    const std::vector<std::string> names = tree_.names();
    for (const std::string& name : names_in(node)) {
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
    Node& node = tree_.at(*position);
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

  Tree tree_;
  std::map<std::string, std::string> absent_;
  Diagnostics& diagnostics_;
};

}  // namespace lockstep
