// SPDX-License-Identifier: Apache-2.0
#include "src/device/block.h"

#include <algorithm>

namespace lockstep::device {

Block::Block(Intervals elements) : elements_(std::move(elements)), begins_{0} {
  for (const Interval& interval : elements_) begins_.push_back(begins_.back() + interval.size());
}

Intervals Block::places(const Intervals& set) const {
  Intervals result;
  auto from = set.begin();
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    while (from != set.end() && from->end <= elements_[i].begin) ++from;
    for (auto each = from; each != set.end() && each->begin < elements_[i].end; ++each) {
      const Interval common = intersect(*each, elements_[i]);
      if (common.empty()) continue;
      const std::int64_t shift = begins_[i] - elements_[i].begin;
      const Interval place{common.begin + shift, common.end + shift};
      if (!result.empty() && result.back().end == place.begin) {
        result.back().end = place.end;
      } else {
        result.push_back(place);
      }
    }
  }
  return result;
}

std::vector<Block> cut_into_blocks(const Intervals& elements, std::int64_t most, std::int64_t stretches) {
  const std::int64_t all = size(elements);
  const std::int64_t count = (all + most - 1) / most;
  // all * stretches would overflow for the largest models.
  const auto part_of = [](const Interval& whole, std::int64_t number, std::int64_t of) {
    const std::int64_t each = whole.size() / of, more = whole.size() % of;
    const auto begin = [&](std::int64_t i) { return whole.begin + each * i + std::min(i, more); };
    return Interval{begin(number), begin(number + 1)};
  };
  std::vector<Block> blocks;
  for (std::int64_t number = 0; number < count; ++number) {
    Intervals chosen;
    for (std::int64_t stretch = 0; stretch < stretches; ++stretch) {
      const Interval positions = part_of(part_of({0, all}, stretch, stretches), number, count);
      if (positions.empty()) continue;
      for (const Interval& each : expand(elements, positions)) {
        if (!chosen.empty() && chosen.back().end == each.begin) {
          chosen.back().end = each.end;
        } else {
          chosen.push_back(each);
        }
      }
    }
    if (!chosen.empty()) blocks.emplace_back(std::move(chosen));
  }
  return blocks;
}

}  // namespace lockstep::device
