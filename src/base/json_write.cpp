// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lockstep/json.h"
#include "src/base/json_string.h"
#include "src/base/utf8.h"

namespace lockstep {

namespace {

constexpr std::size_t indentation = 2;

bool is_scalar(const Json& value) { return !value.is_array() && !value.is_object(); }

void append_scalar(std::string& out, const Json& value) {
  switch (value.kind()) {
    case Json::Kind::boolean:
      out += value.as_boolean() ? "true" : "false";
      break;
    case Json::Kind::number:
      out += value.text();
      break;
    case Json::Kind::string:
      append_json_string(out, value.text());
      break;
    default:
      out += "null";
  }
}

/// Columns, one for each character.
std::size_t columns(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_utf8_continuation));
}

class Writer {
 public:
  explicit Writer(int width) : width_(static_cast<std::size_t>(std::max(width, 0))) {}

  void write(const Json& value) {
    if (is_scalar(value)) return append_scalar(out, value);
    // Each value is tried on one line once, and only if it holds nothing but scalars: linear time.
    if (write_on_one_line(value)) return;
    const bool object = value.is_object();
    out += object ? '{' : '[';
    depth_ += 1;
    const char* separator = "";
    for (const Json::Member& member : value.members()) {
      out += separator;
      new_line();
      append_json_string(out, member.key);
      out += ": ";
      write(member.value);
      separator = ",";
    }
    for (const Json& item : value.items()) {
      out += separator;
      new_line();
      write(item);
      separator = ",";
    }
    depth_ -= 1;
    new_line();
    out += object ? '}' : ']';
  }

  std::string out;

 private:
  void new_line() {
    out += '\n';
    line_ = out.size();
    out.append(depth_ * indentation, ' ');
  }

  /// Takes back what it wrote if that does not fit, with one column left for a comma.
  bool write_on_one_line(const Json& value) {
    const std::size_t begin = out.size();
    if (value.members().empty() && value.items().empty()) {
      out += value.is_object() ? "{}" : "[]";
      return true;
    }
    const char* separator = "";
    if (value.is_object()) {
      out += "{ ";
      for (const Json::Member& member : value.members()) {
        if (!is_scalar(member.value)) return take_back(begin);
        out += separator;
        append_json_string(out, member.key);
        out += ": ";
        append_scalar(out, member.value);
        separator = ", ";
      }
      out += " }";
    } else {
      out += '[';
      for (const Json& item : value.items()) {
        if (!is_scalar(item)) return take_back(begin);
        out += separator;
        append_scalar(out, item);
        separator = ", ";
      }
      out += ']';
    }
    return columns(std::string_view(out).substr(line_)) + 1 <= width_ || take_back(begin);
  }

  bool take_back(std::size_t begin) {
    out.resize(begin);
    return false;
  }

  std::size_t width_;
  std::size_t depth_ = 0;
  std::size_t line_ = 0;  // where the last line begins
};

}  // namespace

std::string write_json(const Json& value, int width) {
  Writer writer(width);
  writer.write(value);
  writer.out += '\n';
  return writer.out;
}

}  // namespace lockstep
