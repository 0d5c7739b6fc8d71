// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/scenario/key_table.h"

namespace lockstep::scenario {

/// The members of an object, checked against its row of the key table. Unknown and missing keys
/// and values of the wrong type are reported once, here; such a member then counts as absent, so
/// that reading can go on. Points into the object, which must outlive it.
class Fields {
 public:
  /// `where` ends the messages: `in "layout"`. `variant` as in has_key().
  Fields(const Json& object, Object kind, std::string_view variant, const std::string& where, Diagnostics& diagnostics);
  /// For objects whose other keys are free (the sizes beside "preset"): these are left alone.
  static Fields with_free_keys(const Json& object, Object kind, const std::string& where, Diagnostics& diagnostics);

  /// The member, if it is there and of its type; else null.
  const Json* find(std::string_view key) const;
  /// A string member's text, or `fallback`.
  std::string text(std::string_view key, std::string_view fallback = "") const;
  bool boolean(std::string_view key, bool fallback = false) const;
  std::int64_t integer(std::string_view key, std::int64_t fallback) const;
  std::vector<std::string> texts(std::string_view key) const;

 private:
  Fields(const Json& object, Object kind, std::string_view variant, const std::string& where, bool free_keys,
         Diagnostics& diagnostics);
  std::vector<std::pair<std::string_view, const Json*>> members_;
};

/// Where a member's key was written; the value's place for a member that the program set.
const Place& key_place(const Json::Member& member);
/// Strings of a list, or the one of a string.
std::vector<std::string> strings_of(const Json& value);
/// Replaces or appends a member, and keeps the place of its key.
void set_member(Json& object, const Json::Member& member);

}  // namespace lockstep::scenario
