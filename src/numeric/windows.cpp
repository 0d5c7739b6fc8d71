// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/windows.h"

#include <algorithm>

#include "src/base/at.h"
#include "src/numeric/block_replay.h"
#include "src/numeric/mix.h"

namespace lockstep::numeric {

std::vector<std::int64_t> find_cuts(const Plan& plan) {
  std::vector<std::int64_t> cuts = {0, plan.numel};
  std::vector<std::pair<Cut, std::size_t>> seen;  // cuts of whole buffers, with the number of members
  const auto add = [&](const Intervals& intervals) {
    for (const Interval& interval : intervals) {
      cuts.push_back(interval.begin);
      cuts.push_back(interval.end);
    }
  };
  const Intervals* last = nullptr;
  for (const PlannedEvent& planned : plan.events) {
    if (!planned.event && !(last && *last == *planned.owned)) add(*(last = planned.owned));
    for (const Intervals* view : planned.views) {
      if (view) add(*view);
    }
    if (!planned.cut) continue;
    const std::size_t members = planned.nodes.size();
    if (planned.views.empty()) {
      if (std::find(seen.begin(), seen.end(), std::pair(*planned.cut, members)) != seen.end()) continue;
      seen.emplace_back(*planned.cut, members);
    }
    for (std::size_t i = 0; i < members; ++i) {
      const Interval slice = planned.cut->slice(static_cast<int>(i));
      if (slice.empty()) continue;
      if (planned.views.empty() || !planned.views[i]) {
        add({slice});
      } else {
        add(expand(*planned.views[i], slice));
      }
    }
    // A view per member would make this grow with the square of the group.
    if (cuts.size() > 100'000) {
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

Intervals around(const std::vector<std::int64_t>& cuts, std::int64_t reach, std::int64_t numel) {
  Intervals result;
  for (const std::int64_t cut : cuts) {
    const Interval window{std::max<std::int64_t>(cut - reach, 0), std::min(cut + reach, numel)};
    if (window.empty()) continue;
    if (!result.empty() && window.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, window.end);
    } else {
      result.push_back(window);
    }
  }
  return result;
}

std::vector<std::int64_t> thin_out(const std::vector<std::int64_t>& cuts, std::size_t count, std::uint64_t seed) {
  if (cuts.size() <= count || cuts.size() <= 2) return cuts;
  std::vector<std::int64_t> result = {cuts.front(), cuts.back()};
  for (std::uint64_t i = 0; i + 2 < count; ++i) {
    result.push_back(cuts[static_cast<std::size_t>(splitmix(seed, i) % cuts.size())]);
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

Intervals random_blocks(std::int64_t numel, std::int64_t length, std::int64_t count, std::uint64_t seed) {
  Intervals result;
  const std::int64_t blocks = (numel + length - 1) / length;
  for (std::int64_t i = 0; i < count && blocks > 0; ++i) {
    const auto number =
        static_cast<std::int64_t>(splitmix(seed, static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(blocks));
    result.push_back({number * length, std::min((number + 1) * length, numel)});
  }
  return unite(result, {});
}

}  // namespace lockstep::numeric
