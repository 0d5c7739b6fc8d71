// SPDX-License-Identifier: Apache-2.0
#include "src/report/html.h"

#include <fmt/format.h>

#include "src/report/clean_text.h"

namespace lockstep {

namespace {

void append_string(const std::string& text, std::string& out) {
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f || c == '<') {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  out += '"';
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
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\r') continue;  // of a line's end
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) {
      allowed += "\xef\xbf\xbd";
    } else {
      allowed += c;
    }
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

}  // namespace lockstep
