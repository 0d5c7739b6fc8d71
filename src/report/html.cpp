// SPDX-License-Identifier: Apache-2.0
#include "src/report/html.h"

#include <algorithm>

#include "src/base/json_string.h"
#include "src/base/utf8.h"
#include "src/report/clean_text.h"

namespace lockstep::report {

namespace {

/// What would not be seen is written as its number here, which the string's own backslash makes the page show.
std::string with_numbers_shown(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(utf8_length(text), 1);
    const std::string_view character = text.substr(0, length);
    shown += length > 1 && is_invisible(character) ? escaped_character(character) : std::string(character);
    text.remove_prefix(length);
  }
  return shown;
}

/// No tag begins in it, and no command of a runner (ReadableText).
void append_string(const std::string& text, std::string& out) {
  std::string json;
  append_json_string(json, with_numbers_shown(text));
  char before = '\0';
  for (const char c : json) {
    if (c == '<' || (c == '#' && before == '#')) {
      out += escaped_character({&c, 1});
    } else {
      out += c;
    }
    before = c;
  }
}

void append(const Json& value, std::string& out) {
  switch (value.kind()) {
    case Json::Kind::null:
      out += "null";
      return;
    case Json::Kind::boolean:
      out += value.as_boolean() ? "true" : "false";
      return;
    case Json::Kind::number:
      out += value.text();
      return;
    case Json::Kind::string:
      return append_string(value.text(), out);
    case Json::Kind::array: {
      out += '[';
      const char* separator = "";
      for (const Json& item : value.items()) {
        out += separator;
        append(item, out);
        separator = ",";
      }
      out += ']';
      return;
    }
    case Json::Kind::object: {
      out += '{';
      const char* separator = "";
      for (const Json::Member& member : value.members()) {
        out += separator;
        append_string(member.key, out);
        out += ':';
        append(member.value, out);
        separator = ",";
      }
      out += '}';
      return;
    }
  }
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string allowed;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(length, 1));
    const bool blank = character == "\n" || character == "\t";
    if (character != "\r")
      allowed +=
          length > 0 && !blank && is_invisible(character) ? escaped_character(character) : std::string(character);
    text.remove_prefix(character.size());
  }
  return markup_text(allowed);
}

std::string script_json(const Json& value) {
  std::string out;
  append(value, out);
  return out;
}

const std::string& text_at(const Json& object, std::string_view key) {
  static const std::string none;
  const Json* member = object.find(key);
  return member != nullptr && (member->is_string() || member->is_number()) ? member->text() : none;
}

const std::vector<Json>& items_at(const Json& object, std::string_view key) {
  static const std::vector<Json> none;
  const Json* member = object.find(key);
  return member == nullptr ? none : member->items();
}

long long number_of(const Json& number) { return std::stoll(number.text()); }

}  // namespace lockstep::report
