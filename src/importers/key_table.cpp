// SPDX-License-Identifier: Apache-2.0
#include "src/importers/key_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "src/importers/origins.h"
#include "src/importers/tables.h"

namespace lockstep::importers {

namespace {

Json parsed_table(const std::string& name) {
  const auto found = embedded_tables().find(name);
  if (found == embedded_tables().end()) throw InternalError("there is no table of keys " + name);
  Diagnostics diagnostics;
  Json table = parse_json(std::make_shared<const Source>(Source{name + ".jsonc", found->second}), diagnostics);
  if (!diagnostics.empty()) throw InternalError(render(diagnostics.sorted().front()));
  return table;
}

std::string text_under(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr ? value->text() : "";
}

ConfigurationKey read_row(const std::string& table, const std::string& key, const Json& json) {
  ConfigurationKey row;
  row.type = text_under(json, "type");
  row.because = text_under(json, "because");
  row.meaning = text_under(json, "read");
  for (const Json::Member& member : json.members()) {
    if (member.key == "option" || member.key == "size" || member.key == "layout") {
      row.goes_to = member.key;
      row.target = member.value.text();
    } else if (member.key == "words") {
      for (const Json& word : member.value.items()) row.words.push_back(word.text());
    } else if (member.key == "becomes") {
      for (const Json::Member& entry : member.value.members()) row.becomes.emplace(entry.key, entry.value);
    } else if (member.key == "of_model") {
      row.of_model = member.value.as_boolean();
    } else if (member.key == "only") {
      row.refuses = true;
      row.only = member.value.items();
    } else if (member.key != "type" && member.key != "because" && member.key != "read") {
      throw InternalError(fmt::format("table {}: \"{}\" has an unknown member \"{}\"", table, key, member.key));
    }
  }
  if (row.type.empty()) row.type = row.words.empty() && row.becomes.empty() ? "any" : "word";
  if (row.type == "word" && row.words.empty()) {
    for (const auto& entry : row.becomes) row.words.push_back(entry.first);
  }
  return row;
}

}  // namespace

std::string ConfigurationKey::pointer() const {
  if (goes_to == "option") return "/schedule/options/" + target;
  if (!goes_to.empty()) return (goes_to == "size" ? "/model/" : "/layout/") + target;
  const std::vector<std::string> pointers = scenario_pointers(meaning);
  return pointers.size() == 1 ? pointers.front() : "";
}

KeyTable::KeyTable(const std::string& name) {
  const Json table = json_ = parsed_table(name);
  framework_ = text_under(table, "framework");
  const Json* keys = table.find("keys");
  const Json* ignored = table.find("do_not_matter");
  if (framework_.empty() || keys == nullptr || ignored == nullptr) {
    throw InternalError(fmt::format("table {} needs framework, keys and do_not_matter", name));
  }
  for (const Json::Member& member : keys->members()) {
    rows_.emplace(member.key, read_row(name, member.key, member.value));
  }
  for (const Json::Member& reason : ignored->members()) {
    for (const Json& pattern : reason.value.items()) ignored_.push_back({pattern.text(), reason.key});
  }
}

void KeyTable::add(const std::string& other) {
  const KeyTable table(other);
  rows_.insert(table.rows_.begin(), table.rows_.end());
  ignored_.insert(ignored_.end(), table.ignored_.begin(), table.ignored_.end());
}

void KeyTable::without_options(const std::string& meaning) {
  for (auto& [key, row] : rows_) {
    if (row.goes_to != "option") continue;
    row.goes_to.clear();
    row.meaning = meaning;
  }
}

const ConfigurationKey* KeyTable::row(std::string_view key) const {
  const auto found = rows_.find(key);
  if (found != rows_.end()) return &found->second;
  const auto described = std::find_if(rows_.begin(), rows_.end(), [&](const auto& row) {
    return row.first.find('*') != std::string::npos && glob_matches(row.first, key);
  });
  return described != rows_.end() ? &described->second : nullptr;
}

std::string KeyTable::ignored(std::string_view key, std::string_view origin) const {
  for (const Ignored& entry : ignored_) {
    if (entry.pattern.starts_with("from:") ? !origin.empty() && glob_matches(entry.pattern.substr(5), origin)
                                           : glob_matches(entry.pattern, key)) {
      return entry.why;
    }
  }
  return "";
}

std::vector<std::string> KeyTable::known() const {
  std::vector<std::string> keys;
  keys.reserve(rows_.size() + ignored_.size());
  for (const auto& row : rows_) {
    if (row.first.find('*') == std::string::npos) keys.push_back(row.first);
  }
  for (const Ignored& entry : ignored_) {
    if (entry.pattern.find_first_of("*:") == std::string::npos) keys.push_back(entry.pattern);
  }
  return keys;
}

bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace lockstep::importers
