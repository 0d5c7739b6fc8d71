// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/edit_mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

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
      : document_(document), edits_(edits), mistakes_of_(mistakes_of) {}

  /// Null where none causes it, or nothing tells which.
  const Json* cause(const Diagnostic& mistake) {
    const std::vector<Json>& items = edits_.items();
    if (!may_be_caused(mistake.place) || is_among(items, mistake) != Is::there || is_among({}, mistake) == Is::there)
      return nullptr;
    std::vector<Json> first = items;
    Is with_fewer = Is::there;
    while (with_fewer == Is::there) {
      first.pop_back();
      with_fewer = is_among(first, mistake);
    }
    if (with_fewer == Is::not_there) return &items[first.size()];
    for (std::size_t i = items.size(); i-- > 0;) {
      std::vector<Json> others = items;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      if (is_among(others, mistake) == Is::not_there) return &items[i];
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

  /// Whether the mistake is there with these edits alone: unknown where they have a mistake that all edits together do
  /// not have, behind which nobody looked further.
  Is is_among(const std::vector<Json>& some, const Diagnostic& mistake) {
    const std::vector<Diagnostic>& found = mistakes_with(some);
    const auto holds = [](const std::vector<Diagnostic>& list, const Diagnostic& one) {
      return std::any_of(list.begin(), list.end(), [&](const Diagnostic& other) { return same(one, other); });
    };
    if (holds(found, mistake)) return Is::there;
    const std::vector<Diagnostic>& with_all = mistakes_with(edits_.items());
    const bool only_known =
        std::all_of(found.begin(), found.end(), [&](const Diagnostic& one) { return holds(with_all, one); });
    return only_known ? Is::not_there : Is::unknown;
  }

  const std::vector<Diagnostic>& mistakes_with(const std::vector<Json>& some) {
    std::vector<std::size_t> places;
    for (const Json& edit : some) places.push_back(edit.place().begin);
    const auto [found, is_new] = with_.try_emplace(std::move(places));
    if (is_new) {
      Json edits = edits_, schedule = *document_.find("schedule"), document = document_;
      edits.set_items(some);
      schedule.set("edits", edits);
      document.set("schedule", schedule);
      found->second = mistakes_of_(document);
    }
    return found->second;
  }

  const Json& document_;
  const Json& edits_;
  const MistakesOf& mistakes_of_;
  std::map<std::vector<std::size_t>, std::vector<Diagnostic>> with_;  // by the places of edits
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
