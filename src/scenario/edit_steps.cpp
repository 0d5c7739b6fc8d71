// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/operation.h"
#include "src/scenario/edits.h"
#include "src/scenario/step_tree.h"

namespace lockstep {

namespace {

class StepEditor {
 public:
  StepEditor(const Json& steps, std::map<std::string, std::string> absent, Diagnostics& diagnostics)
      : tree_(steps), absent_(std::move(absent)), diagnostics_(diagnostics) {}

  void apply(const Edit& edit) {
    switch (edit.action) {
      case Edit::Action::drop:
        return drop(edit.step);
      case Edit::Action::duplicate:
        return duplicate(edit.step);
      case Edit::Action::move:
        return move(edit);
      case Edit::Action::insert:
        return insert(edit);
      case Edit::Action::set:
        return set(edit);
      case Edit::Action::parameter:
        return;
    }
  }

  Json result() const { return tree_.json(); }

 private:
  std::optional<StepTree::Position> find(const EditTarget& target) {
    const auto found = tree_.find(target.name);
    if (found) {
      if (target.iteration.empty() || found->parent != nullptr || tree_.at(*found).is_each()) return found;
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
    StepNode& node = tree_.at(*position);
    if (!target.iteration.empty()) {
      const std::string others = iteration_condition(target, false);
      if (!node.is_each()) node.step = with_condition(node.step, others, target.place);
      for (StepNode& inner : node.body) inner.step = with_condition(inner.step, others, target.place);
      return;
    }
    const std::vector<std::string> names = StepTree::names_in(node);
    std::vector<StepNode>& list = tree_.list_of(*position);
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(position->index));
    tree_.remove_waits(names);
    for (const std::string& name : names) absent_[name] = "an earlier edit dropped it";
  }

  void duplicate(const EditTarget& target) {
    const auto position = find(target);
    if (!position) return;
    StepNode copy = tree_.at(*position);
    if (!target.iteration.empty()) {
      if (copy.is_each()) {
        diagnostics_.add(target.place,
                         fmt::format("\"{}\" is an \"each\": duplicate the steps inside it", target.name));
        return;
      }
      copy.iteration = iteration_condition(target, true);
    }
    const std::vector<std::string> names = tree_.names();
    const std::vector<std::string> inside = StepTree::names_in(copy);
    int number = 2;
    const auto taken = [&](const std::string& name) {
      return std::find(names.begin(), names.end(), fmt::format("{}.{}", name, number)) != names.end();
    };
    while (std::any_of(inside.begin(), inside.end(), taken)) ++number;
    rename(copy, inside, fmt::format(".{}", number));
    std::vector<StepNode>& list = tree_.list_of(*position);
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(position->index) + 1, copy);
  }

  /// Gives a copy and what is inside it names of their own; its waits are for its own steps.
  static void rename(StepNode& node, const std::vector<std::string>& names, const std::string& suffix) {
    for (const char* key : {"name", "for"}) {
      const Json* name = node.step.find(key);
      if (name == nullptr || !name->is_string()) continue;
      if (std::find(names.begin(), names.end(), name->text()) == names.end()) continue;
      node.step.set(key, Json::string(name->text() + suffix, name->place()));
    }
    for (StepNode& inner : node.body) rename(inner, names, suffix);
  }

  /// Puts `node` in front of or behind the target; a mistake is added where that is not there.
  void place(StepNode node, const EditTarget& target, bool after) {
    const auto position = find(target);
    if (!position) return;
    StepNode& found = tree_.at(*position);
    // Beside a step that is in one iteration only, it is in that one too.
    if (!found.iteration.empty()) node.iteration = found.iteration;
    if (!target.iteration.empty()) node.iteration = iteration_condition(target, true);
    if (!target.iteration.empty() && found.is_each()) {
      found.body.insert(after ? found.body.end() : found.body.begin(), node);
      return;
    }
    std::vector<StepNode>& list = tree_.list_of(*position);
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(position->index) + (after ? 1 : 0), node);
  }

  void move(const Edit& edit) {
    const auto position = find(edit.step);
    const auto destination = find(edit.beside);
    if (!position || !destination) return;
    StepNode node = tree_.at(*position);
    const std::vector<std::string> inside = StepTree::names_in(node);
    const std::string &name = edit.step.name, &other = edit.beside.name;
    if (std::find(inside.begin(), inside.end(), other) != inside.end()) {
      diagnostics_.add(edit.beside.place,
                       other == name ? fmt::format("step \"{}\" cannot be moved relative to itself", name)
                                     : fmt::format("step \"{}\" is inside \"{}\" and moves with it", other, name));
      return;
    }
    if (position->parent != destination->parent) node.iteration.clear();
    std::vector<StepNode>& list = tree_.list_of(*position);
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(position->index));
    place(node, edit.beside, edit.after);
  }

  void insert(const Edit& edit) {
    const StepNode node = StepTree::node_of(edit.inserted);
    const std::vector<std::string> names = tree_.names();
    for (const std::string& name : StepTree::names_in(node)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;
      const Json* written = edit.inserted.find("name");
      diagnostics_.add(written != nullptr ? written->place() : edit.inserted.place(),
                       fmt::format("there is a step \"{}\" already", name));
      return;
    }
    place(node, edit.beside, edit.after);
  }

  void set(const Edit& edit) {
    const auto position = find(edit.step);
    if (!position) return;
    if (edit.values.empty()) {
      diagnostics_.add(edit.place,
                       fmt::format("the edit \"set\" names no key of step \"{}\" to change", edit.step.name));
    }
    StepNode& node = tree_.at(*position);
    const std::string iteration = std::exchange(node.iteration, "");
    const bool whole = edit.value("steps") != nullptr;
    Json step = whole ? StepTree::json_of(node) : node.step;
    for (const Json::Member& member : edit.values) set_key(step, member);
    if (whole) {
      node = StepTree::node_of(step);
    } else {
      node.step = step;
    }
    node.iteration = iteration;
  }

  void set_key(Json& step, const Json::Member& member) {
    if (member.value.is_null()) {
      // Any op's key: an edit that changes the op removes what only the old one had.
      if (find_key(object_row(Object::step), member.key) == nullptr) {
        std::vector<std::string> known;
        for (const ObjectKey& key : object_row(Object::step).keys) known.emplace_back(key.name);
        diagnostics_.add(key_place(member), fmt::format("unknown key \"{}\" in the edit \"set\"{}", member.key,
                                                        did_you_mean(member.key, known)));
      }
      step.remove(member.key);
      return;
    }
    const Json* old = step.find(member.key);
    if (member.key == "geometry" && member.value.is_object() && old != nullptr && old->is_object()) {
      step.set("geometry", merged_geometry(*old, member.value));
    } else {
      set_member(step, member);
    }
  }

  /// Key by key; keys of another kind would have no meaning in the new one.
  static Json merged_geometry(const Json& old, const Json& changes) {
    const Json* kind = changes.find("kind");
    const Json* old_kind = old.find("kind");
    Json merged = kind != nullptr && old_kind != nullptr && !kind->same_as(*old_kind)
                      ? Json::object({}, changes.place())
                      : old.at(changes.place());
    for (const Json::Member& member : changes.members()) {
      if (member.value.is_null()) {
        merged.remove(member.key);
      } else {
        set_member(merged, member);
      }
    }
    return merged;
  }

  StepTree tree_;
  std::map<std::string, std::string> absent_;
  Diagnostics& diagnostics_;
};

}  // namespace

Json apply_step_edits(const Json& steps, const std::vector<Edit>& edits,
                      const std::map<std::string, std::string>& absent, Diagnostics& diagnostics) {
  StepEditor editor(steps, absent, diagnostics);
  for (const Edit& edit : edits) editor.apply(edit);
  return editor.result();
}

}  // namespace lockstep
