// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/owned_values.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace lockstep {

namespace {

/// Where one value is held.
struct Held {
  std::vector<OwnedStretch> stretches;  ///< ascending, each once
  Intervals where;                      ///< all of them together
};

std::map<int, Held> by_value(std::vector<OwnedStretch> stretches) {
  std::sort(stretches.begin(), stretches.end(), [](const OwnedStretch& a, const OwnedStretch& b) {
    return std::tuple(a.elements.begin, a.elements.end, a.rank) < std::tuple(b.elements.begin, b.elements.end, b.rank);
  });
  std::map<int, Held> result;
  for (const OwnedStretch& stretch : stretches) {
    Held& held = result[stretch.value];
    // Replicas: a thousand ranks that own all elements with one value are one owner.
    if (!held.stretches.empty() && held.stretches.back().elements == stretch.elements) continue;
    held.stretches.push_back(stretch);
    if (!held.where.empty() && held.where.back().end >= stretch.elements.begin)
      held.where.back().end = std::max(held.where.back().end, stretch.elements.end);
    else
      held.where.push_back(stretch.elements);
  }
  return result;
}

}  // namespace

std::vector<OtherValue> other_values(std::vector<OwnedStretch> before, std::vector<OwnedStretch> after,
                                     std::size_t* looked_at) {
  std::size_t ignored = 0;
  std::size_t& count = looked_at != nullptr ? *looked_at : ignored;
  count += before.size() + after.size();
  const std::map<int, Held> old_values = by_value(std::move(before)), new_values = by_value(std::move(after));
  std::vector<OtherValue> result;
  for (const auto& [value, held] : old_values) {
    const auto same = new_values.find(value);
    Intervals left = same == new_values.end() ? held.where : subtract(held.where, same->second.where);
    count += held.where.size();
    for (auto other = new_values.begin(); other != new_values.end() && !left.empty(); ++other) {
      const Intervals common = intersect(left, other->second.where);
      count += left.size() + other->second.where.size();
      if (common.empty()) continue;
      left = subtract(left, common);
      const std::vector<OwnedStretch>& owners = other->second.stretches;
      const auto owner = std::find_if(owners.begin(), owners.end(), [&](const OwnedStretch& stretch) {
        ++count;
        return !intersect(stretch.elements, common.front()).empty();
      });
      auto at = common.begin();
      for (OwnedStretch stretch : held.stretches) {
        ++count;
        while (at != common.end() && at->end <= stretch.elements.begin) ++at;
        if (at == common.end()) break;
        stretch.elements = intersect(stretch.elements, *at);
        if (!stretch.elements.empty()) result.push_back({stretch, *owner});
      }
    }
  }
  std::sort(result.begin(), result.end(), [](const OtherValue& a, const OtherValue& b) {
    return std::tuple(a.before.value, a.after.value, a.before.rank, a.before.elements.begin) <
           std::tuple(b.before.value, b.after.value, b.before.rank, b.before.elements.begin);
  });
  return result;
}

}  // namespace lockstep
