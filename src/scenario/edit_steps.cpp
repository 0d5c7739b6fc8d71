// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "src/scenario/step_edits.h"

namespace lockstep::scenario {

namespace {

/// Key by key; keys of another kind would have no meaning in the new one.
Json merged_geometry(const Json& old, const Json& changes) {
  const Json* kind = changes.find("kind");
  const Json* old_kind = old.find("kind");
  Json merged = kind != nullptr && old_kind != nullptr && !kind->same_as(*old_kind) ? Json::object({}, changes.place())
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

void set_written_key(Json& step, const Json::Member& member, Diagnostics& diagnostics) {
  if (member.value.is_null()) {
    // Any op's key: an edit that changes the op removes what only the old one had.
    if (find_key(object_row(Object::step), member.key) == nullptr) {
      std::vector<std::string> known;
      for (const ObjectKey& key : object_row(Object::step).keys) known.emplace_back(key.name);
      diagnostics.add(key_place(member), fmt::format("unknown key \"{}\" in the edit \"set\"{}", member.key,
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

}  // namespace

Json apply_step_edits(const Json& steps, const std::vector<WrittenEdit>& edits,
                      const std::map<std::string, std::string>& absent, Diagnostics& diagnostics) {
  StepEdits<Json> edited(steps.items(), absent, diagnostics);
  for (const WrittenEdit& one : edits) {
    edited.apply(one.edit, one.inserted, [&](Json& step) {
      if (one.values.empty()) {
        diagnostics.add(one.edit.place,
                        fmt::format("the edit \"set\" names no key of step \"{}\" to change", one.edit.step.name));
      }
      for (const Json::Member& member : one.values) set_written_key(step, member, diagnostics);
    });
  }
  return Json::array(edited.take_steps(), steps.place());
}

}  // namespace lockstep::scenario
