// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/changed_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/scenario/key_table.h"
#include "src/scenario/text_keys.h"

namespace lockstep::scenario {

namespace {

[[noreturn]] void refuse_change(std::string why) { throw InputError({Diagnostic{{}, std::move(why)}}); }

/// What stands behind the sign of a change, which is what mistakes in it are mistakes of.
Json value_of(const std::string& name, const std::string& text) {
  Diagnostics diagnostics;
  const auto source = std::make_shared<const Source>(Source{name, text});
  Json value = parse_json(source, diagnostics);
  return diagnostics.empty() ? value : Json::string(text, Place{source, 0, text.size(), ""});
}

std::vector<std::string> path_of(const std::string& key) {
  if (key == "framework") return {"schedule", "framework"};
  if (key == "micro_batches") return {"batch", key};
  if (axis_named(key)) return {"layout", key};
  if (find_key(object_row(Object::scenario), key) != nullptr) return {key};
  if (key.find('.') == std::string::npos) return {"schedule", "options", key};
  std::vector<std::string> parts(1);
  for (const char c : key) {
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

/// The document with the value at the path of a change.
class Change {
 public:
  Change(std::string text, std::vector<std::string> path, Json value)
      : text_(std::move(text)), path_(std::move(path)), value_(std::move(value)) {}

  const std::vector<std::string>& path() const { return path_; }

  /// Whether the change is of what stands at `outer`, or of a part of it.
  bool is_within(const std::vector<std::string>& outer) const {
    return outer.size() <= path_.size() && std::equal(outer.begin(), outer.end(), path_.begin());
  }

  /// `json`: what stands at the first `depth` parts of the path.
  Json in(const Json& json, std::size_t depth = 0) const {
    if (depth == path_.size()) return value_;
    const std::string& part = path_[depth];
    if (part.empty()) refuse_change(fmt::format("\"{}\" has an empty name between its dots", text_));
    if (json.is_array()) return in_list(json, depth);
    if (!json.is_object()) refuse(fmt::format("\"{}\" is {}, which has no members", path_to(depth), json.describe()));
    const Json* inner = json.find(part);
    const bool wants_list = depth + 1 < path_.size() && is_index(path_[depth + 1]);
    if (inner == nullptr && (wants_list || is_index(part))) {
      std::vector<std::string> known;
      for (const Json::Member& member : json.members()) known.push_back(path_to(depth, member.key));
      refuse(fmt::format("the file has no \"{}\"{}", path_to(depth, part), did_you_mean(path_to(depth, part), known)));
    }
    Json result = json;
    result.set(part, in(inner != nullptr ? *inner : Json::object({}, value_.place()), depth + 1));
    return result;
  }

 private:
  static bool is_index(const std::string& part) {
    return part.find_first_not_of("0123456789") == std::string::npos && part.size() < 10;
  }

  Json in_list(const Json& list, std::size_t depth) const {
    std::vector<Json> items = list.items();
    const std::string& part = path_[depth];
    const std::size_t index = is_index(part) ? std::stoul(part) : items.size();
    // "01" is another spelling of 1 that nobody else has.
    if (index >= items.size() || part != std::to_string(index)) {
      refuse(fmt::format("\"{}\" has {}, named by numbers from 0{}", path_to(depth), counted(items.size(), "element"),
                         items.empty() ? ""
                                       : fmt::format("; the nearest is \"{}\"",
                                                     path_to(depth, std::to_string(nearest_of(items, part))))));
    }
    items[index] = in(items[index], depth + 1);
    Json result = list;
    result.set_items(std::move(items));
    return result;
  }

  /// The element that is meant by a number with zeros or blanks before it, that is called so, or nearly; else the last.
  static std::size_t nearest_of(const std::vector<Json>& items, const std::string& part) {
    const std::size_t begin = std::min(part.find_first_not_of(" +0"), part.size() - 1);
    if (const std::string digits = part.substr(begin); is_index(digits) && std::stoul(digits) < items.size())
      return std::stoul(digits);
    std::vector<std::string> names;
    for (const Json& item : items) {
      const Json* name = item.find("name");
      names.push_back(name != nullptr && name->is_string() ? name->text() : "");
    }
    const std::string near = nearest_word(part, names);
    const auto found = std::find(names.begin(), names.end(), near) - names.begin();
    return near.empty() ? names.size() - 1 : at(found);
  }

  /// The first `depth` parts of the path, and `last`.
  std::string path_to(std::size_t depth, const std::string& last = "") const {
    std::vector<std::string> parts(path_.begin(), path_.begin() + static_cast<std::ptrdiff_t>(depth));
    if (!last.empty()) parts.push_back(last);
    return fmt::format("{}", fmt::join(parts, "."));
  }

  [[noreturn]] void refuse(const std::string& why) const {
    refuse_change(fmt::format("\"{}\" cannot be set: {}", text_, why));
  }

  std::string text_;
  std::vector<std::string> path_;
  Json value_;
};

/// The key of an option, where the file has no framework.
void want_framework(const Json& document, const std::string& change, const std::vector<std::string>& path) {
  const Json* schedule = document.find("schedule");
  if (path.size() != 3 || path[0] != "schedule" || path[1] != "options" || schedule == nullptr ||
      schedule->find("framework") != nullptr)
    return;
  std::vector<std::string> known = axis_names();
  known.emplace_back("micro_batches");
  for (const ObjectKey& key : object_row(Object::scenario).keys) known.emplace_back(key.name);
  refuse_change(
      fmt::format("\"{}\" cannot be set: \"{}\" is neither an axis nor micro_batches, and the file names no "
                  "framework whose option it could be{}",
                  change, path[2], did_you_mean(path[2], known)));
}

}  // namespace

Json with_changes(const Json& document, const std::string& file, const std::vector<std::string>& changes,
                  const std::string& option) {
  if (changes.empty()) return document;
  Json changed = document;
  std::vector<Change> bare;  // texts that look like something else
  for (const std::string& change : changes) {
    const std::size_t sign = change.find('=');
    if (sign == std::string::npos || sign == 0)
      refuse_change(fmt::format("a change is KEY=VALUE, such as use_distributed_optimizer=true, found \"{}\"", change));
    const std::vector<std::string> path = path_of(change.substr(0, sign));
    want_framework(changed, change, path);
    if (!option.empty() && path.front() == "expect")
      refuse_change(fmt::format("\"{}\" cannot be set: what a file expects is left aside with {}", change, option));
    const std::string name = option.empty() ? change : fmt::format("{} {}", option, change);
    const std::string text = change.substr(sign + 1);
    const Json value = value_of(name, text);
    changed = Change(change, path, value).in(changed);
    std::erase_if(bare, [&](const Change& earlier) { return earlier.is_within(path); });
    if (value.is_number() || value.is_boolean()) bare.emplace_back(change, path, Json::string(text, value.place()));
  }
  // A later change may name the framework or the model whose key an earlier one sets.
  const std::filesystem::path folder =
      file == standard_input_name ? std::filesystem::path() : std::filesystem::path(file).parent_path();
  for (const Change& one : bare) {
    if (holds_text(changed, folder, one.path())) changed = one.in(changed);
  }
  changed.remove("expect");
  return changed;
}

Scenario read_changed_scenario(const std::string& file, const std::vector<std::string>& changes) {
  Scenario scenario = read_scenario_file(file);
  return changes.empty() ? scenario : read_scenario(with_changes(scenario.document, file, changes), file);
}

namespace {

std::vector<std::string>& set_changes() {
  static std::vector<std::string> changes;
  return changes;
}

}  // namespace

void set_in_every_scenario(std::vector<std::string> changes) { set_changes() = std::move(changes); }

const std::vector<std::string>& changes_of_every_scenario() { return set_changes(); }

}  // namespace lockstep::scenario
