// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/intervals.h"
#include "lockstep/json.h"
#include "lockstep/report.h"

namespace lockstep::report {

/// Writes JSON as it comes, so that a report never stands in memory whole. Two spaces of
/// indentation; a container opened with `one_line` stands on one line with all it holds.
class JsonWriter {
 public:
  explicit JsonWriter(Write write) : write_(std::move(write)) {}

  void begin_object(bool one_line = false) { begin('{', one_line); }
  void end_object() { end('}'); }
  void begin_array(bool one_line = false) { begin('[', one_line); }
  void end_array() { end(']'); }
  /// Returns this writer: `json.key("rank").number(3)`.
  JsonWriter& key(std::string_view name);

  void string(std::string_view text);
  void number(std::integral auto value) { raw(std::to_string(value)); }
  void seconds(double value);
  void boolean(bool value) { raw(value ? "true" : "false"); }
  void null() { raw("null"); }
  /// null where `text` is empty.
  void string_or_null(std::string_view text);
  void value(const Json& json, bool one_line = false);
  void numbers(const std::vector<int>& values);
  /// One a line, or all on one.
  void strings(const std::vector<std::string>& texts, bool one_line = false);
  /// [[begin, end], …]
  void intervals(const Intervals& intervals);
  void interval(const Interval& interval);

  /// Ends the text with a newline and hands on everything.
  void finish();

 private:
  struct Level {
    bool one_line = false;
    bool empty = true;
  };
  void begin(char bracket, bool one_line);
  void end(char bracket);
  void raw(std::string_view text);
  void before_value();
  void new_line();

  Write write_;
  std::string buffer_;
  std::vector<Level> levels_;
  bool after_key_ = false;
};

}  // namespace lockstep::report
