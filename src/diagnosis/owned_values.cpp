// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/owned_values.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace lockstep::diagnosis {

namespace {

/// The ranks that hold element `at`, ascending; `end` becomes the next element, at most, of which others may hold it.
std::vector<int> holders_of(const std::vector<OwnedStretch>& stretches, std::int64_t at, std::int64_t& end) {
  std::vector<int> ranks;
  for (const OwnedStretch& stretch : stretches) {
    if (stretch.elements.begin > at) {
      end = std::min(end, stretch.elements.begin);
      break;
    }
    if (stretch.elements.end <= at) continue;
    end = std::min(end, stretch.elements.end);
    ranks.push_back(stretch.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace

std::map<int, Held> by_value(std::vector<OwnedStretch> stretches) {
  std::sort(stretches.begin(), stretches.end(), [](const OwnedStretch& a, const OwnedStretch& b) {
    return std::tuple(a.elements.begin, a.elements.end, a.rank) < std::tuple(b.elements.begin, b.elements.end, b.rank);
  });
  std::map<int, Held> result;
  for (const OwnedStretch& stretch : stretches) {
    Held& held = result[stretch.value];
    held.stretches.push_back(stretch);
    if (!held.where.empty() && held.where.back().end >= stretch.elements.begin)
      held.where.back().end = std::max(held.where.back().end, stretch.elements.end);
    else
      held.where.push_back(stretch.elements);
  }
  return result;
}

std::vector<OtherValue> other_values(const std::map<int, Held>& before, const std::map<int, Held>& after,
                                     std::size_t* looked_at) {
  std::size_t ignored = 0;
  std::size_t& count = looked_at != nullptr ? *looked_at : ignored;
  std::vector<OtherValue> result;
  for (const auto& [value, held] : before) {
    const auto same = after.find(value);
    Intervals left = same == after.end() ? held.where : subtract(held.where, same->second.where);
    count += held.where.size();
    for (auto other = after.begin(); other != after.end() && !left.empty(); ++other) {
      Intervals common = intersect(left, other->second.where);
      count += left.size() + other->second.where.size();
      if (common.empty()) continue;
      left = subtract(left, common);
      result.push_back({value, other->first, std::move(common)});
    }
  }
  return result;
}

std::vector<DifferingElements> holders(const Intervals& elements, const std::vector<OwnedStretch>& before,
                                       const std::vector<OwnedStretch>& after, std::size_t most, std::int64_t& more) {
  std::vector<DifferingElements> result;
  bool full = false;
  for (const Interval& interval : elements) {
    if (full) more += interval.size();
    for (std::int64_t at = interval.begin; at < interval.end && !full;) {
      std::int64_t end = interval.end;
      std::vector<int> ranks = holders_of(before, at, end), new_ranks = holders_of(after, at, end);
      if (!result.empty() && result.back().elements.end == at && result.back().ranks == ranks &&
          result.back().new_ranks == new_ranks) {
        result.back().elements.end = end;
      } else if (result.size() == most) {
        more += interval.end - at;
        full = true;
      } else {
        result.push_back({{at, end}, std::move(ranks), std::move(new_ranks)});
      }
      at = end;
    }
  }
  return result;
}

}  // namespace lockstep::diagnosis
