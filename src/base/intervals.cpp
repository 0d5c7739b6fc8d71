// SPDX-License-Identifier: Apache-2.0
#include "lockstep/intervals.h"

#include <algorithm>

namespace lockstep {

Interval intersect(const Interval& a, const Interval& b) {
  const Interval both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.empty() ? Interval{} : both;
}

Intervals intersect(const Intervals& a, const Interval& b) {
  Intervals result;
  for (const Interval& interval : a) {
    const Interval both = intersect(interval, b);
    if (!both.empty()) result.push_back(both);
  }
  return result;
}

Intervals intersect(const Intervals& a, const Intervals& b) {
  Intervals result;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval both = intersect(a[i], b[j]);
    if (!both.empty()) result.push_back(both);
    (a[i].end < b[j].end ? i : j)++;
  }
  return result;
}

Intervals unite(const Intervals& a, const Intervals& b) {
  Intervals all = a;
  all.insert(all.end(), b.begin(), b.end());
  std::sort(all.begin(), all.end(), [](const Interval& x, const Interval& y) { return x.begin < y.begin; });
  Intervals result;
  for (const Interval& interval : all) {
    if (interval.empty()) continue;
    if (!result.empty() && interval.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, interval.end);
    } else {
      result.push_back(interval);
    }
  }
  return result;
}

Intervals subtract(const Intervals& a, const Intervals& b) {
  Intervals result;
  std::size_t j = 0;
  for (Interval rest : a) {
    while (j < b.size() && b[j].end <= rest.begin) ++j;
    for (std::size_t k = j; k < b.size() && b[k].begin < rest.end; ++k) {
      if (b[k].begin > rest.begin) result.push_back({rest.begin, b[k].begin});
      rest.begin = std::max(rest.begin, b[k].end);
    }
    if (!rest.empty()) result.push_back(rest);
  }
  return result;
}

std::int64_t size(const Intervals& set) {
  std::int64_t total = 0;
  for (const Interval& interval : set) total += interval.size();
  return total;
}

Intervals expand(const Intervals& view, const Interval& positions) {
  Intervals result;
  std::int64_t before = 0;
  for (const Interval& interval : view) {
    const Interval part = intersect(Interval{before, before + interval.size()}, positions);
    if (!part.empty()) result.push_back({interval.begin + part.begin - before, interval.begin + part.end - before});
    before += interval.size();
  }
  return result;
}

}  // namespace lockstep
