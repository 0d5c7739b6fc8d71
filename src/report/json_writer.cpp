// SPDX-License-Identifier: Apache-2.0
#include "src/report/json_writer.h"

#include <fmt/format.h>

#include "src/base/json_string.h"

namespace lockstep::report {

namespace {
constexpr std::size_t flush_at = 1 << 16;
}

void JsonWriter::begin(char bracket, bool one_line) {
  before_value();
  buffer_ += bracket;
  levels_.push_back({one_line || (!levels_.empty() && levels_.back().one_line), true});
}

void JsonWriter::end(char bracket) {
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty) {
    if (level.one_line) {
      if (bracket == '}') buffer_ += ' ';
    } else {
      new_line();
    }
  }
  buffer_ += bracket;
}

void JsonWriter::new_line() {
  buffer_ += '\n';
  buffer_.append(2 * levels_.size(), ' ');
}

void JsonWriter::before_value() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (levels_.empty()) return;
  Level& level = levels_.back();
  if (!level.empty) buffer_ += level.one_line ? ", " : ",";
  if (!level.one_line) new_line();
  level.empty = false;
  if (buffer_.size() > flush_at) {
    write_(buffer_);
    buffer_.clear();
  }
}

JsonWriter& JsonWriter::key(std::string_view name) {
  const bool first = levels_.back().empty;
  before_value();
  if (first && levels_.back().one_line) buffer_ += ' ';
  append_json_string(buffer_, name);
  buffer_ += ": ";
  after_key_ = true;
  return *this;
}

void JsonWriter::raw(std::string_view text) {
  before_value();
  buffer_ += text;
}

void JsonWriter::string(std::string_view text) {
  before_value();
  append_json_string(buffer_, text);
}

void JsonWriter::seconds(double value) { raw(fmt::format("{:.6f}", value)); }

void JsonWriter::string_or_null(std::string_view text) {
  if (text.empty()) {
    null();
  } else {
    string(text);
  }
}

void JsonWriter::value(const Json& json, bool one_line) {
  switch (json.kind()) {
    case Json::Kind::null:
      return null();
    case Json::Kind::boolean:
      return boolean(json.as_boolean());
    case Json::Kind::number:
      return raw(json.text());
    case Json::Kind::string:
      return string(json.text());
    case Json::Kind::array:
      begin_array(one_line);
      for (const Json& item : json.items()) value(item, one_line);
      return end_array();
    case Json::Kind::object:
      begin_object(one_line);
      for (const Json::Member& member : json.members()) {
        key(member.key);
        value(member.value, one_line);
      }
      return end_object();
  }
}

void JsonWriter::strings(const std::vector<std::string>& texts, bool one_line) {
  begin_array(one_line);
  for (const std::string& text : texts) string(text);
  end_array();
}

void JsonWriter::numbers(const std::vector<int>& values) {
  begin_array(true);
  for (const int one : values) number(one);
  end_array();
}

void JsonWriter::interval(const Interval& interval) {
  begin_array(true);
  number(interval.begin);
  number(interval.end);
  end_array();
}

void JsonWriter::intervals(const Intervals& intervals) {
  begin_array(true);
  for (const Interval& one : intervals) interval(one);
  end_array();
}

void JsonWriter::finish() {
  buffer_ += '\n';
  write_(buffer_);
  buffer_.clear();
}

}  // namespace lockstep::report
