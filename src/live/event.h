// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/hash.h"
#include "lockstep/json.h"
#include "lockstep/model.h"

namespace lockstep::live {

inline constexpr std::int64_t most_whole = INT32_MAX;

/// One line of a captured run, or an event of an extraction: an object whose known keys are checked and whose other
/// keys are passed over. What is wrong or missing is added to the diagnostics, and a value of the right type comes back
/// all the same.
class Event {
 public:
  /// `kind`: what messages call it: a "step" line.
  Event(const Json& object, std::string name, Diagnostics& diagnostics, std::string_view kind = "line")
      : object_(object), name_(std::move(name)), diagnostics_(diagnostics), kind_(kind) {}

  /// From `least` to `most`.
  std::int64_t whole(std::string_view key, std::int64_t least = 0, std::int64_t most = most_whole) const;
  /// Nothing where the value is null; where the key is missing that is a mistake.
  std::optional<std::int64_t> whole_or_null(std::string_view key) const;
  /// Greater than 0 and finite; 1 where the key is missing.
  double factor(std::string_view key) const;
  std::string text(std::string_view key, std::string_view fallback) const;
  std::string required_text(std::string_view key) const;
  std::optional<std::string> text_or_null(std::string_view key) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::vector<std::string> texts(std::string_view key) const;
  std::vector<std::int64_t> wholes(std::string_view key, std::int64_t least = 0,
                                   std::int64_t most = INT64_MAX / 2) const;
  GradientHash hash(std::string_view key) const;
  Dtype dtype(std::string_view key) const;

  /// The member, where it is there; else a mistake and null.
  const Json* required(std::string_view key) const;
  const Json* find(std::string_view key) const { return object_.find(key); }
  const Json& object() const { return object_; }
  /// What messages call it: "\"step\" line".
  std::string words() const { return '"' + name_ + "\" " + std::string(kind_); }
  void mistake(const Json& where, std::string message) const { diagnostics_.add(where.place(), std::move(message)); }
  void mistake(std::string message) const { mistake(object_, std::move(message)); }
  Diagnostics& diagnostics() const { return diagnostics_; }
  /// A member that is an object itself, whose mistakes are told as this one's.
  Event inner(const Json& member) const { return {member, name_, diagnostics_, kind_}; }

 private:
  void wrong_type(std::string_view key, const Json& found, std::string_view expected) const;

  const Json& object_;
  std::string name_;
  Diagnostics& diagnostics_;
  std::string_view kind_;
};

/// The number that `value` holds, if it is a whole one that fits.
std::optional<std::int64_t> whole_number_of(const Json& value);

}  // namespace lockstep::live
