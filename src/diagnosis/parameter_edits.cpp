// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/diagnosis/step_editor.h"

namespace lockstep::diagnosis {

using Kind = Candidate::Kind;

namespace {

using Words = std::vector<std::string>;

/// `words` and what of `others` is not among them.
Words joined(Words words, const Words& others) {
  for (const std::string& word : others) {
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  return words;
}

/// "numel<64" and "numel<=64" for each other: the parameter of exactly that size.
std::string with_other_bound(std::string item) {
  const std::size_t at = item.find_first_of("<>");
  if (at == std::string::npos) return item;
  return item.substr(at + 1).starts_with('=') ? item.erase(at + 1, 1) : item.insert(at + 1, "=");
}

}  // namespace

void ParameterEdits::change_geometry(std::string_view key, Geometry geometry) {
  Step values;
  values.geometry = std::move(geometry);
  values.keys = {key};
  set(Kind::geometry, std::move(values));
}

void ParameterEdits::geometry() {
  if (!takes("geometry")) return;
  const Geometry& old = *step_.geometry;
  for (const auto kind :
       {Geometry::Kind::parameter, Geometry::Kind::rows, Geometry::Kind::flat, Geometry::Kind::bucket}) {
    Geometry other;
    other.kind = kind;
    change_geometry("geometry.kind", other);
  }
  // One that has one length for all slices cannot have those.
  for (const Geometry& other : values_.geometries) {
    if (!row_.equal_slices) change_geometry("geometry", other);
  }
  if (old.kind != Geometry::Kind::bucket) return;
  const Words separate = old.separate.value_or(Selectors()).items();
  if (!separate.empty()) change_geometry("geometry.separate", {});
  for (const Selectors& selection : values_.selections) {
    Geometry other;
    other.separate = Selectors(joined(separate, selection.items()));
    if (other.separate->items().size() > separate.size()) change_geometry("geometry.separate", other);
  }
  if (old.size) add(Kind::geometry, Edit::set(step_.name, {}, {"geometry.size"}));
}

void ParameterEdits::set_selectors(Words items) {
  set(Kind::parameters, "params", &Step::params, Selectors(std::move(items)));
}

void ParameterEdits::parameters() {
  if (step_.op == Op::wait || step_.op == Op::backward) return;
  const Words& old = step_.params.items();
  remove(Kind::parameters, "params");
  for (std::size_t at = 0; at < old.size() && old.size() > 1; ++at) {
    const std::string name = old[at].starts_with('!') ? old[at].substr(1) : old[at];
    if (old.size() > most_single_items &&
        std::find(values_.selectors.begin(), values_.selectors.end(), name) == values_.selectors.end())
      continue;
    Words fewer = old;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at));
    set_selectors(std::move(fewer));
  }
  for (std::size_t at = 0; at < old.size(); ++at) {
    if (!Selectors::compares_numel(old[at])) continue;
    Words other = old;
    other[at] = with_other_bound(other[at]);
    if (other != old) set_selectors(std::move(other));
  }
  for (const Selectors& selection : values_.selections) set_selectors(selection.items());
  const auto with = [&](const std::string& item) {
    Words more = joined(old, {item});
    if (more.size() > old.size()) set_selectors(std::move(more));
  };
  const bool all_but =
      std::all_of(old.begin(), old.end(), [](const std::string& item) { return item.starts_with('!'); });
  for (const std::string& item : values_.selectors) {
    with("!" + item);
    if (!all_but) with(item);
  }
  if (all_but) return;
  for (const Selectors& selection : values_.selections) {
    Words more = joined(old, selection.items());
    if (more.size() > old.size() + 1) set_selectors(std::move(more));
  }
}

void ParameterEdits::uses() {
  if (!takes("uses") || values_.uses.size() < 2) return;
  remove(Kind::parameters, "uses");
  for (const std::string& use : values_.uses) set(Kind::parameters, "uses", &Step::uses, {use});
  for (const std::string& use : values_.uses) {
    Words others = values_.uses;
    std::erase(others, use);
    if (others.size() > 1) set(Kind::parameters, "uses", &Step::uses, std::move(others));
  }
}

}  // namespace lockstep::diagnosis
