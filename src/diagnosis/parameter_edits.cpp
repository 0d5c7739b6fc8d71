// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/diagnosis/step_editor.h"

namespace lockstep {

using Kind = Candidate::Kind;

namespace {

std::vector<std::string> items_of(const Json* selectors) {
  std::vector<std::string> items;
  if (selectors == nullptr) return items;
  if (selectors->is_string()) items.push_back(selectors->text());
  for (const Json& item : selectors->items()) items.push_back(item.text());
  return items;
}

Json list_of(const std::vector<std::string>& words) {
  std::vector<Json> items;
  items.reserve(words.size());
  for (const std::string& word : words) items.push_back(Json::string(word));
  return Json::array(std::move(items));
}

}  // namespace

void ParameterEdits::geometry() {
  if (!takes("geometry")) return;
  const Json* old = key("geometry");
  const std::string kind = old == nullptr ? "" : text_of(*old, "kind");
  const auto change = [&](std::vector<Json::Member> members) {
    add(Kind::geometry, Edit::set(step_->name, {{"geometry", {}, Json::object(std::move(members))}}));
  };
  for (const char* other : {"parameter", "rows", "flat", "bucket"}) {
    if (kind != other && !(kind.empty() && std::string_view(other) == "parameter"))
      change({{"kind", {}, Json::string(other)}});
  }
  // A reduce_scatter cannot have those.
  for (const Json& other : values_.geometries) {
    if (step_->op != Op::reduce_scatter && (old == nullptr || write_json(*old) != write_json(other)))
      add(Kind::geometry, Edit::set(step_->name, {{"geometry", {}, other}}));
  }
  if (kind != "bucket") return;
  std::vector<std::string> separate = items_of(old->find("separate"));
  if (!separate.empty()) change({{"separate", {}, Json::array()}});
  for (const Json& selection : values_.selections) {
    std::vector<std::string> more = separate;
    for (const std::string& item : items_of(&selection)) {
      if (std::find(more.begin(), more.end(), item) == more.end()) more.push_back(item);
    }
    if (more.size() > separate.size()) change({{"separate", {}, list_of(more)}});
  }
  if (old->find("size") != nullptr) change({{"size", {}, Json()}});
}

void ParameterEdits::parameters() {
  if (step_->op == Op::wait || step_->op == Op::backward) return;
  const std::vector<std::string> old = items_of(key("params"));
  if (!old.empty()) set(Kind::parameters, "params", Json());
  for (std::size_t at = 0; at < old.size() && old.size() > 1; ++at) {
    const std::string name = old[at].starts_with('!') ? old[at].substr(1) : old[at];
    if (old.size() > most_single_items &&
        std::find(values_.selectors.begin(), values_.selectors.end(), name) == values_.selectors.end())
      continue;
    std::vector<std::string> fewer = old;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at));
    set(Kind::parameters, "params", list_of(fewer));
  }
  for (const Json& selection : values_.selections) set(Kind::parameters, "params", selection);
  const auto with = [&](const std::string& item) {
    if (std::find(old.begin(), old.end(), item) != old.end()) return;
    std::vector<std::string> more = old;
    more.push_back(item);
    set(Kind::parameters, "params", list_of(more));
  };
  const bool all_but =
      std::all_of(old.begin(), old.end(), [](const std::string& item) { return item.starts_with('!'); });
  for (const std::string& item : values_.selectors) {
    with("!" + item);
    if (!all_but) with(item);
  }
  if (all_but) return;
  for (const Json& selection : values_.selections) {
    std::vector<std::string> more = old;
    for (const std::string& item : items_of(&selection)) {
      if (std::find(more.begin(), more.end(), item) == more.end()) more.push_back(item);
    }
    if (more.size() > old.size() + 1) set(Kind::parameters, "params", list_of(more));
  }
}

void ParameterEdits::uses() {
  if (!takes("uses") || values_.uses.size() < 2) return;
  set(Kind::parameters, "uses", Json());
  for (const std::string& use : values_.uses) set(Kind::parameters, "uses", list_of({use}));
  for (const std::string& use : values_.uses) {
    std::vector<std::string> others = values_.uses;
    std::erase(others, use);
    if (others.size() > 1) set(Kind::parameters, "uses", list_of(others));
  }
}

}  // namespace lockstep
