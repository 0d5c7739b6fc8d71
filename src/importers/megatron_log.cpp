// SPDX-License-Identifier: Apache-2.0
#include "src/importers/megatron_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "src/importers/key_table.h"
#include "src/importers/megatron_flags.h"
#include "src/importers/syntax.h"

namespace lockstep::importers {

namespace {

constexpr std::string_view block_begin = " arguments ------";
constexpr std::string_view block_end = "end of arguments ----";

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Python's None, True, numbers and lists; everything else is text.
Json python_value(const std::shared_ptr<const Source>& source, std::size_t begin, std::size_t end) {
  const Place place{source, begin, end, ""};
  std::string text = source->text.substr(begin, end - begin);
  if (text == "None") return Json().at(place);
  if (!text.starts_with('[') || !text.ends_with(']')) return scalar_value(std::move(text), place);
  std::vector<Json> items;
  std::string item;
  for (const char c : text.substr(1, text.size() - 2) + ",") {
    if (c == ',') {
      if (!item.empty()) items.push_back(scalar_value(std::move(item), place));
      item.clear();
    } else if (c != ' ' && c != '\'' && c != '"') {
      item += c;
    }
  }
  return Json::array(std::move(items), place);
}

/// Reads "name ..... value" in [begin, end); false where the line is none.
bool read_line(const std::shared_ptr<const Source>& source, std::size_t begin, std::size_t end, Settings& settings) {
  const std::string& text = source->text;
  while (end > begin && std::isspace(static_cast<unsigned char>(text[end - 1])) != 0) --end;
  // The name stands before the first run of dots between spaces; names of 48 characters or more have none.
  std::size_t dots = text.find(" ..", begin);
  std::size_t name_end = dots, value = end;
  if (dots != std::string::npos && dots < end) {
    value = text.find_first_not_of('.', dots + 1);
  } else {
    name_end = text.find("  ", text.find_first_not_of(' ', begin));
    if (name_end == std::string::npos || name_end >= end) return false;
    value = name_end;
  }
  while (value < end && text[value] == ' ') ++value;
  std::size_t name = name_end;
  while (name > begin && is_name_character(text[name - 1])) --name;
  if (name == name_end || value > end) return false;
  const std::string key = text.substr(name, name_end - name);
  settings.set({key, key, {source, name, name_end, ""}, python_value(source, value, end), megatron_origin(key), ""});
  return true;
}

}  // namespace

bool has_megatron_arguments_block(std::string_view text) {
  return text.find(block_begin) != std::string_view::npos && text.find(block_end) != std::string_view::npos;
}

namespace {

/// The block of arguments before `end`; where it begins, npos where it does not.
std::size_t read_block(const std::shared_ptr<const Source>& source, std::size_t end, Settings& settings) {
  const std::string& text = source->text;
  const std::size_t head = text.rfind(block_begin, end);
  if (head == std::string::npos) return head;
  std::size_t begin = text.find('\n', head);
  while (begin != std::string::npos && begin + 1 < end) {
    const std::size_t stop = std::min(text.find('\n', begin + 1), text.size());
    if (stop <= end) read_line(source, begin + 1, stop, settings);
    begin = stop < text.size() ? stop : std::string::npos;
  }
  return head;
}

/// A sentence where the block before `head` says something else that matters; "" where there is none or it does not.
std::string earlier_block(const std::shared_ptr<const Source>& source, std::size_t head, const Settings& settings) {
  const std::size_t end = head > 0 ? source->text.rfind(block_end, head) : std::string::npos;
  Settings earlier;
  if (end == std::string::npos || read_block(source, end, earlier) == std::string::npos) return "";
  const KeyTable table("megatron");
  std::vector<std::string> other;
  for (const Setting& setting : settings.all()) {
    const Setting* before = earlier.find(setting.key);
    const bool same = before != nullptr && before->value.same_as(setting.value);
    if (!same && table.row(setting.key) != nullptr) other.push_back(setting.key);
  }
  if (other.empty()) return "";
  constexpr std::size_t most = 5;
  const bool more = other.size() > most;
  other.resize(std::min(other.size(), most));
  return fmt::format(
      "The log has several blocks of arguments, and the last one counts; the one before it differs in {}{}.",
      fmt::join(other, ", "), more ? " and others" : "");
}

}  // namespace

Settings read_megatron_log(const std::shared_ptr<const Source>& source, std::vector<std::string>& notes,
                           Diagnostics& diagnostics) {
  Settings settings;
  const std::size_t head = read_block(source, source->text.rfind(block_end), settings);
  if (head == std::string::npos) {
    diagnostics.add({source, 0, 0, ""}, "the arguments end, but do not begin; expected the whole block");
    return settings;
  }
  if (settings.all().empty()) diagnostics.add({source, head, head, ""}, "this block of arguments is empty");
  if (const std::string note = earlier_block(source, head, settings); !note.empty()) notes.push_back(note);
  return settings;
}

}  // namespace lockstep::importers
