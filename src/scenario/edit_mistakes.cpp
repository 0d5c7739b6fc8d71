// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/edit_mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/scenario/fields.h"

namespace lockstep::scenario {

namespace {

// Each is another reading of the file.
constexpr std::size_t most_edits = 64, most_mistakes = 100;

bool same(const Diagnostic& one, const Diagnostic& other) {
  return one.message == other.message && one.place.source == other.place.source &&
         one.place.begin == other.place.begin && one.place.end == other.place.end;
}

class EditCauses {
 public:
  EditCauses(const Json& document, const Json& edits, const MistakesOf& mistakes_of)
      : document_(document), edits_(edits), mistakes_of_(mistakes_of) {
    for (std::size_t i = 0; i < edits.items().size(); ++i) all_.insert(i);
  }

  /// Null where none causes it, or nothing tells which.
  const Json* cause(const Diagnostic& mistake) {
    const std::vector<Json>& items = edits_.items();
    if (!may_be_caused(mistake.place) || is_without({}, mistake) != Is::there || is_without(all_, mistake) == Is::there)
      return nullptr;
    std::set<std::size_t> last;
    Is with_fewer = Is::there;
    while (with_fewer == Is::there) {
      last.insert(items.size() - 1 - last.size());
      with_fewer = is_without(last, mistake);
    }
    if (with_fewer == Is::not_there) return &items[*last.begin()];
    for (std::size_t i = items.size(); i-- > 0;) {
      if (is_without({i}, mistake) == Is::not_there) return &items[i];
    }
    return nullptr;
  }

 private:
  /// What stands in an edit has its place already.
  bool may_be_caused(const Place& place) const {
    if (place.source == nullptr || place.source != document_.place().source) return true;
    const bool in_edits = edits_.place().begin <= place.begin && place.end <= edits_.place().end;
    const std::string& pointer = place.pointer.text();
    return !in_edits && (pointer.starts_with("/schedule") || pointer.starts_with("/model"));
  }

  enum class Is { there, not_there, unknown };

  /// Whether the mistake is there without these edits: unknown where the others have a mistake that all edits together
  /// do not have, behind which nobody looked further.
  Is is_without(const std::set<std::size_t>& some, const Diagnostic& mistake) {
    const std::vector<Diagnostic>& found = mistakes_without(some);
    const auto holds = [](const std::vector<Diagnostic>& list, const Diagnostic& one) {
      return std::any_of(list.begin(), list.end(), [&](const Diagnostic& other) { return same(one, other); });
    };
    if (holds(found, mistake)) return Is::there;
    const std::vector<Diagnostic>& with_all = mistakes_without({});
    const bool only_known =
        std::all_of(found.begin(), found.end(), [&](const Diagnostic& one) { return holds(with_all, one); });
    return only_known ? Is::not_there : Is::unknown;
  }

  const std::vector<Diagnostic>& mistakes_without(const std::set<std::size_t>& some) {
    const auto [found, is_new] = without_.try_emplace(some);
    if (is_new) found->second = mistakes_of_(WhatIf{.left_out = some});
    return found->second;
  }

  const Json& document_;
  const Json& edits_;
  const MistakesOf& mistakes_of_;
  std::set<std::size_t> all_;
  std::map<std::set<std::size_t>, std::vector<Diagnostic>> without_;  // by what is left out
};

/// "op", or the one key that an edit gives another value; else what it does.
const Json::Member& telling_key(const Json& edit, const Json::Member& action) {
  const std::vector<Json::Member>& members = edit.members();
  if (action.key != "set" && action.key != "parameter") return action;
  for (const Json::Member& member : members) {
    if (member.key == "op" || (members.size() == 2 && &member != &action)) return member;
  }
  return action;
}

Diagnostic at_edit(const Json& edit, const Diagnostic& mistake) {
  const std::vector<std::string> actions = variants_of(object_row(Object::edit));
  const std::vector<Json::Member>& members = edit.members();
  const auto action = std::find_if(members.begin(), members.end(), [&](const Json::Member& member) {
    return std::find(actions.begin(), actions.end(), member.key) != actions.end();
  });
  const Json* changed = action->key == "insert" ? action->value.find("name") : &action->value;
  const std::vector<std::string> names = changed == nullptr ? std::vector<std::string>() : strings_of(*changed);
  return {key_place(telling_key(edit, *action)),
          fmt::format("with this edit of {}{}: {}", action->key == "parameter" ? "parameter" : "step",
                      names.empty() ? "" : fmt::format(" \"{}\"", fmt::join(names, "\", \"")), mistake.message)};
}

}  // namespace

std::vector<Diagnostic> at_their_edits(const std::vector<Diagnostic>& mistakes, const Json& document,
                                       const MistakesOf& mistakes_of) {
  const Json* schedule = document.find("schedule");
  const Json* edits = schedule == nullptr ? nullptr : schedule->find("edits");
  if (edits == nullptr || !edits->is_array() || edits->items().empty() || edits->items().size() > most_edits ||
      mistakes.size() > most_mistakes)
    return mistakes;
  EditCauses causes(document, *edits, mistakes_of);
  Diagnostics moved;
  for (const Diagnostic& one : mistakes) {
    const Json* edit = causes.cause(one);
    const Diagnostic told = edit == nullptr ? one : at_edit(*edit, one);
    moved.add(told.place, told.message);
  }
  return moved.sorted();
}

}  // namespace lockstep::scenario
