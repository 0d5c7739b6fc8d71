// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/norm_differences.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "src/base/at.h"

namespace lockstep::diagnosis {

namespace {

using CountsOfParameters = std::map<std::pair<std::string, int>, std::string>;

/// How often a norm counts the elements of a parameter on a rank, where that is not once.
CountsOfParameters counts_of(const Model& model, const SymbolicResult& result) {
  CountsOfParameters counts;
  for (const NormResult& norm : result.norm) {
    const int logical = model.logical_of(norm.parameter);
    std::string& text = counts[{model.logicals()[at(logical)].name, norm.rank}];
    text += fmt::format("{}{} of {} elements {}", text.empty() ? "" : ", ", norm.elements, norm.of,
                        norm.counted == "1" ? "too early" : norm.counted + " times");
  }
  return counts;
}

}  // namespace

std::vector<NormDifference> norm_differences(const Model& old_model, const SymbolicResult& before,
                                             const Model& new_model, const SymbolicResult& after) {
  const bool had = !before.norm_of.empty(), has = !after.norm_of.empty();
  if (had != has) return {{"", 0, had ? "a norm" : "no norm", has ? "a norm" : "no norm"}};
  const CountsOfParameters old_counts = counts_of(old_model, before), new_counts = counts_of(new_model, after);
  const auto of = [](const CountsOfParameters& counts, const auto& key) {
    const auto found = counts.find(key);
    return found == counts.end() ? std::string("once") : found->second;
  };
  std::set<std::pair<std::string, int>> keys;
  for (const auto* counts : {&old_counts, &new_counts}) {
    for (const auto& [key, text] : *counts) keys.insert(key);
  }
  std::vector<NormDifference> differences;
  for (const auto& key : keys) {
    const std::string was = of(old_counts, key), is = of(new_counts, key);
    const bool is_shown = !differences.empty() && differences.back().parameter == key.first;
    if (was != is && !is_shown) differences.push_back({key.first, key.second, was, is});
  }
  return differences;
}

}  // namespace lockstep::diagnosis
