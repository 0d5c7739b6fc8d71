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
  StepEditor(const Json& steps, std::map<std::string, std::string> absent, Reading& reading)
      : tree_(steps), absent_(std::move(absent)), reading_(reading) {}

  void apply(const Json& edit) {
    const std::string action = action_of(edit, reading_);
    if (action.empty() || action == "parameter") return;
    if (action == "set") return set(edit);
    const Fields fields(edit, Object::edit, action, fmt::format("in the edit \"{}\"", action), reading_.diagnostics);
    if (fields.find(action) == nullptr) return;
    if (action == "drop") drop(*fields.find(action));
    if (action == "duplicate") duplicate(*fields.find(action));
    if (action == "move") move(edit, fields);
    if (action == "insert") insert(edit, fields);
  }

  Json result() const { return tree_.json(); }

 private:
  std::optional<StepTree::Position> find(const EditTarget& target) {
    const auto found = tree_.find(target.name);
    if (found) {
      if (target.iteration.empty() || found->parent != nullptr || tree_.at(*found).is_each()) return found;
      reading_.diagnostics.add(
          target.place, fmt::format("step \"{}\" is not inside an \"each\", so it has no iteration {}", target.name,
                                    target.iteration));
      return std::nullopt;
    }
    const auto absent = absent_.find(target.name);
    if (absent != absent_.end()) {
      reading_.diagnostics.add(target.place,
                               fmt::format("step \"{}\" is not in the schedule: {}", target.name, absent->second));
      return std::nullopt;
    }
    const std::vector<std::string> names = tree_.names();
    const std::string near = did_you_mean(target.name, names);
    reading_.diagnostics.add(
        target.place,
        fmt::format("no step is named \"{}\"{}", target.name,
                    near.empty() && !names.empty() ? "; the steps are " + quoted_alternatives(names) : near));
    return std::nullopt;
  }

  void drop(const Json& value) {
    const auto target = read_target(value, reading_);
    const auto position = target ? find(*target) : std::nullopt;
    if (!position) return;
    StepNode& node = tree_.at(*position);
    if (!target->iteration.empty()) {
      const std::string others = iteration_condition(*target, false);
      if (!node.is_each()) node.step = with_condition(node.step, others, value.place());
      for (StepNode& inner : node.body) inner.step = with_condition(inner.step, others, value.place());
      return;
    }
    const std::vector<std::string> names = StepTree::names_in(node);
    std::vector<StepNode>& list = tree_.list_of(*position);
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(position->index));
    tree_.remove_waits(names);
    for (const std::string& name : names) absent_[name] = "an earlier edit dropped it";
  }

  void duplicate(const Json& value) {
    const auto target = read_target(value, reading_);
    const auto position = target ? find(*target) : std::nullopt;
    if (!position) return;
    StepNode copy = tree_.at(*position);
    if (!target->iteration.empty()) {
      if (copy.is_each()) {
        reading_.diagnostics.add(value.place(),
                                 fmt::format("\"{}\" is an \"each\": duplicate the steps inside it", target->name));
        return;
      }
      copy.iteration = iteration_condition(*target, true);
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

  /// "before" or "after" of an edit: exactly one must be there.
  const Json* destination(const Json& edit, const Fields& fields, std::string_view action, bool& after) {
    const Json* before = fields.find("before");
    const Json* behind = fields.find("after");
    if ((before != nullptr) == (behind != nullptr)) {
      if (before != nullptr || (edit.find("before") == nullptr && edit.find("after") == nullptr)) {
        reading_.diagnostics.add(edit.place(), fmt::format("the edit \"{}\" needs either \"before\" or \"after\"{}",
                                                           action, before != nullptr ? ", not both" : ""));
      }
      return nullptr;
    }
    after = behind != nullptr;
    return after ? behind : before;
  }

  /// Puts `node` in front of or behind the target. False where a mistake was added.
  bool place(StepNode node, const EditTarget& target, bool after) {
    const auto position = find(target);
    if (!position) return false;
    StepNode& found = tree_.at(*position);
    // Beside a step that is in one iteration only, it is in that one too.
    if (!found.iteration.empty()) node.iteration = found.iteration;
    if (!target.iteration.empty()) node.iteration = iteration_condition(target, true);
    if (!target.iteration.empty() && found.is_each()) {
      found.body.insert(after ? found.body.end() : found.body.begin(), node);
      return true;
    }
    std::vector<StepNode>& list = tree_.list_of(*position);
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(position->index) + (after ? 1 : 0), node);
    return true;
  }

  void move(const Json& edit, const Fields& fields) {
    bool after = false;
    const Json* to = destination(edit, fields, "move", after);
    const auto target = read_target(*fields.find("move"), reading_);
    const auto relative = to != nullptr ? read_target(*to, reading_) : std::nullopt;
    if (!target || !relative) return;
    if (!target->iteration.empty()) {
      reading_.diagnostics.add(target->place, "\"move\" takes a whole step, not one iteration of it");
      return;
    }
    const auto position = find(*target);
    const auto destination_position = find(*relative);
    if (!position || !destination_position) return;
    StepNode node = tree_.at(*position);
    const std::vector<std::string> inside = StepTree::names_in(node);
    if (std::find(inside.begin(), inside.end(), relative->name) != inside.end()) {
      reading_.diagnostics.add(
          relative->place,
          relative->name == target->name
              ? fmt::format("step \"{}\" cannot be moved relative to itself", target->name)
              : fmt::format("step \"{}\" is inside \"{}\" and moves with it", relative->name, target->name));
      return;
    }
    if (position->parent != destination_position->parent) node.iteration.clear();
    std::vector<StepNode>& list = tree_.list_of(*position);
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(position->index));
    place(node, *relative, after);
  }

  void insert(const Json& edit, const Fields& fields) {
    bool after = false;
    const Json* to = destination(edit, fields, "insert", after);
    const Json& step = *fields.find("insert");
    const StepNode node = StepTree::node_of(step);
    const std::vector<std::string> names = tree_.names();
    for (const std::string& name : StepTree::names_in(node)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;
      const Json* written = step.find("name");
      reading_.diagnostics.add(written != nullptr ? written->place() : step.place(),
                               fmt::format("there is a step \"{}\" already", name));
      return;
    }
    const auto relative = to != nullptr ? read_target(*to, reading_) : std::nullopt;
    if (relative) place(node, *relative, after);
  }

  void set(const Json& edit) {
    const Json& value = *edit.find("set");
    if (!check_type(value, Type::name, "", reading_.diagnostics)) return;
    const auto target = read_target(value, reading_);
    if (!target) return;
    if (!target->iteration.empty()) {
      reading_.diagnostics.add(target->place, "\"set\" changes a whole step, not one iteration of it");
      return;
    }
    const auto position = find(*target);
    if (!position) return;
    if (edit.members().size() == 1) {
      reading_.diagnostics.add(edit.place(),
                               fmt::format("the edit \"set\" names no key of step \"{}\" to change", target->name));
    }
    StepNode& node = tree_.at(*position);
    const std::string iteration = std::exchange(node.iteration, "");
    Json step = edit.find("steps") != nullptr ? StepTree::json_of(node) : node.step;
    for (const Json::Member& member : edit.members()) {
      if (member.key != "set") set_key(step, member);
    }
    if (edit.find("steps") != nullptr) {
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
        reading_.diagnostics.add(key_place(member), fmt::format("unknown key \"{}\" in the edit \"set\"{}", member.key,
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
  Reading& reading_;
};

}  // namespace

Json apply_step_edits(const Json& steps, const Json& edits, const std::map<std::string, std::string>& absent,
                      Reading& reading) {
  StepEditor editor(steps, absent, reading);
  for (const Json& edit : edits.items()) editor.apply(edit);
  return editor.result();
}

}  // namespace lockstep
