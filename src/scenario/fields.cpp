// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/scenario/other_words.h"

namespace lockstep::scenario {

namespace {

/// The variants of an object that have the key, for "… have it".
std::string owners(const ObjectRow& object, const ObjectKey& key) {
  std::vector<std::string> with;
  for (const std::string& variant : variants_of(object)) {
    if (has_key(object, key, variant)) with.push_back(variant);
  }
  return fmt::format("{} {}", fmt::join(with, ", "), with.size() == 1 ? "has it" : "have it");
}

std::string unknown_key(const ObjectRow& object, const std::string& key, std::string_view variant,
                        const std::string& where) {
  const ObjectKey* row = find_key(object, key);
  if (row != nullptr)
    return fmt::format("key \"{}\" does not belong to \"{}\" {}; {}", key, variant, where, owners(object, *row));
  std::vector<std::string> known;
  for (const ObjectKey& candidate : object.keys) {
    if (has_key(object, candidate, variant)) known.emplace_back(candidate.name);
  }
  std::string near = did_you_mean_here(key, known);
  // The size of the world is what people look for first in a layout.
  if (object.object == Object::layout && (key == "world" || meant_by(key, {"world"}) == "world"))
    near = "; the world size is the product of tp, cp, sp, dp and pp, and is not given";
  if (near.empty()) near = fmt::format("; its keys are {}", fmt::join(known, ", "));
  return fmt::format("unknown key \"{}\" {}{}", key, where, near);
}

}  // namespace

Fields::Fields(const Json& object, Object kind, std::string_view variant, const std::string& where,
               Diagnostics& diagnostics)
    : Fields(object, kind, variant, where, false, diagnostics) {}

Fields Fields::with_free_keys(const Json& object, Object kind, const std::string& where, Diagnostics& diagnostics) {
  return {object, kind, "", where, true, diagnostics};
}

Fields::Fields(const Json& object, Object kind, std::string_view variant, const std::string& where, bool free_keys,
               Diagnostics& diagnostics) {
  if (!object.is_object()) {
    diagnostics.add(object.place(), fmt::format("expected an object, found {}", object.describe()));
    return;
  }
  const ObjectRow& row = object_row(kind);
  for (const Json::Member& member : object.members()) {
    const ObjectKey* key = find_key(row, member.key);
    if (key != nullptr && has_key(row, *key, variant)) {
      if (check_type(member.value, key->type, key->allowed, diagnostics))
        members_.emplace_back(key->name, &member.value);
    } else if (!free_keys) {
      diagnostics.add(key_place(member), unknown_key(row, member.key, variant, where));
    }
  }
  for (const ObjectKey& key : row.keys) {
    if (!needs_key(key, variant) || !has_key(row, key, variant) || object.find(key.name) != nullptr) continue;
    diagnostics.add(object.place(), fmt::format("missing key \"{}\" {}: {}", key.name, where, key.help));
  }
}

const Json* Fields::find(std::string_view key) const {
  for (const auto& [name, value] : members_) {
    if (name == key) return value;
  }
  return nullptr;
}

std::string Fields::text(std::string_view key, std::string_view fallback) const {
  const Json* value = find(key);
  return value != nullptr && value->is_string() ? value->text() : std::string(fallback);
}

bool Fields::boolean(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  return value != nullptr && value->is_boolean() ? value->as_boolean() : fallback;
}

std::int64_t Fields::integer(std::string_view key, std::int64_t fallback) const {
  const Json* value = find(key);
  return value != nullptr ? whole_number(*value).value_or(fallback) : fallback;
}

std::vector<std::string> Fields::texts(std::string_view key) const {
  const Json* value = find(key);
  return value != nullptr ? strings_of(*value) : std::vector<std::string>();
}

const Place& key_place(const Json::Member& member) {
  return member.key_place.source ? member.key_place : member.value.place();
}

std::vector<std::string> strings_of(const Json& value) {
  if (value.is_string()) return {value.text()};
  std::vector<std::string> list;
  for (const Json& item : value.items()) list.push_back(item.text());
  return list;
}

void set_member(Json& object, const Json::Member& member) {
  std::vector<Json::Member> members = object.members();
  for (Json::Member& old : members) {
    if (old.key == member.key) {
      old = member;
      object = Json::object(std::move(members), object.place());
      return;
    }
  }
  members.push_back(member);
  object = Json::object(std::move(members), object.place());
}

}  // namespace lockstep::scenario
