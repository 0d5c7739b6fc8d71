// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/diagnostic.h"

namespace lockstep {

/// A JSON value that knows where it was written. Copies share their content; a value is never
/// changed in place once it was handed out, so copies may be edited freely (copy on write).
///
/// Values of several files mix: a step of a framework file that a scenario's edit has changed
/// keeps, for each of its parts, the file and place that the part comes from.
class Json {
 public:
  enum class Kind { null, boolean, number, string, array, object };
  struct Member;

  Json();  ///< null, from nowhere
  static Json boolean(bool value, Place place = {});
  /// `text` is the number as written ("0.1", "5e8"): numbers are exact and are never doubles.
  static Json number(std::string text, Place place = {});
  static Json string(std::string text, Place place = {});
  static Json array(std::vector<Json> items = {}, Place place = {});
  static Json object();
  static Json object(std::vector<Member> members, Place place = {});

  Kind kind() const;
  bool is_null() const { return kind() == Kind::null; }
  bool is_boolean() const { return kind() == Kind::boolean; }
  bool is_number() const { return kind() == Kind::number; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }

  /// The value's own place; for a value made by the program, an empty one.
  const Place& place() const;
  /// A copy that claims to have been written at `place`.
  Json at(const Place& place) const;

  bool as_boolean() const;                     ///< only for booleans
  const std::string& text() const;             ///< of a string: its characters; of a number: as written
  const std::vector<Json>& items() const;      ///< of an array; empty for every other kind
  const std::vector<Member>& members() const;  ///< of an object, as written; empty for every other kind

  /// The member's value, or null if there is none.
  const Json* find(std::string_view key) const;
  /// Replaces or appends a member (of an object).
  void set(std::string_view key, Json value);
  void remove(std::string_view key);
  /// Replaces the items of an array.
  void set_items(std::vector<Json> items);

  /// `the string "dp"`, "the number 3", "true", "an object": for "found …" in messages.
  std::string describe() const;
  /// Equal content, wherever it was written. Numbers are compared as exact values.
  bool same_as(const Json& other) const;

 private:
  struct Node;
  std::shared_ptr<Node> node_;
};

struct Json::Member {
  std::string key;
  Place key_place;
  Json value;
};

inline Json Json::object() { return object(std::vector<Member>{}); }

/// Parses JSON with comments (`//`, `/* */`) and trailing commas. Every value gets its place and
/// JSON pointer. A syntax error is added to `diagnostics` (one, then parsing stops and null comes
/// back); each key given twice is added too. Nesting deeper than 200 is an error, not a crash; so
/// is text that is not UTF-8.
Json parse_json(std::shared_ptr<const Source> source, Diagnostics& diagnostics);

/// Writes `value` as JSON text with two spaces of indentation and a final newline. Arrays and
/// objects that hold only scalars and fit in `width` columns stand on one line.
std::string write_json(const Json& value, int width = 120);

}  // namespace lockstep
