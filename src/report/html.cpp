// SPDX-License-Identifier: Apache-2.0
#include "src/report/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/utf8.h"
#include "src/report/clean_text.h"

namespace lockstep {

namespace {

void append_string(const std::string& text, std::string& out) {
  out += '"';
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const auto byte = static_cast<unsigned char>(c);
    const std::size_t length = utf8_length(std::string_view(text).substr(at, 4));
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f || c == '<' || (c == '#' && at > 0 && text[at - 1] == '#')) {
      out += fmt::format("\\u{:04x}", byte);
    } else if (length > 1) {
      // The page shows it as a number, so the backslash is to be read.
      const std::string character = text.substr(at, length);
      for (const char part : is_invisible(character) ? escaped_character(character) : character)
        out += part == '\\' ? "\\\\" : std::string(1, part);
      at += length - 1;
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

}  // namespace lockstep
