// SPDX-License-Identifier: Apache-2.0
#include "src/live/region_overlaps.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/live/words.h"

namespace lockstep::live {

namespace {

constexpr std::int64_t most_box_stretches = 1 << 20;

/// A box as stretches of row-major indices, one after the other in its own order.
class BoxStretches {
 public:
  BoxStretches(const Region& region, const std::vector<std::int64_t>& shape) : region_(region), shape_(shape) {
    if (region.begin) {
      length_ = region.elements;
      return;
    }
    // A stretch spans the last dimension that the box has not whole.
    length_ = 1;
    for (dim_ = shape.size(); dim_-- > 0;) {
      length_ *= region.piece[dim_].size();
      if (region.piece[dim_].size() != shape[dim_]) break;
    }
  }

  std::int64_t length() const { return length_; }
  std::int64_t count() const { return length_ == 0 ? 0 : region_.elements / length_; }

  /// Of an element, in the box's own order.
  std::int64_t index(std::int64_t element) const { return begin(element / length_) + element % length_; }

  /// The first index of a stretch.
  std::int64_t begin(std::int64_t number) const {
    if (region_.begin) return *region_.begin;
    std::int64_t index = 0, stride = 1;
    for (std::size_t dim = shape_.size(); dim-- > 0;) {
      const Interval& own = region_.piece[dim];
      std::int64_t place = own.begin;
      if (dim < dim_) {
        place += number % own.size();
        number /= own.size();
      }
      index += place * stride;
      stride *= shape_[dim];
    }
    return index;
  }

 private:
  const Region& region_;
  const std::vector<std::int64_t>& shape_;
  std::int64_t length_ = 0;
  std::size_t dim_ = 0;
};

}  // namespace

RegionOverlaps::Known RegionOverlaps::compare(const Region& one, const Region& other) const {
  Known known;
  const std::vector<std::int64_t>& shape = extraction_.run.parameters[at(one.parameter)].declared.shape;
  const BoxStretches a(one, shape), b(other, shape);
  if (a.count() + b.count() > most_box_stretches) {
    known.compared = false;
    return known;
  }
  Budget::spend(1 + (a.count() + b.count()) / 4);
  for (std::int64_t i = 0, j = 0; i < a.count() && j < b.count();) {
    const std::int64_t from_a = a.begin(i), from_b = b.begin(j);
    const std::int64_t begin = std::max(from_a, from_b), end = std::min(from_a + a.length(), from_b + b.length());
    if (begin < end) {
      const std::int64_t own = i * a.length() + begin - from_a, theirs = j * b.length() + begin - from_b;
      std::vector<Overlap>& all = known.overlaps;
      if (!all.empty() && all.back().elements.end == own && all.back().move == theirs - own) {
        all.back().elements.end += end - begin;
      } else {
        all.push_back({{own, own + end - begin}, theirs - own});
      }
    }
    (from_a + a.length() <= from_b + b.length() ? i : j) += 1;
  }
  return known;
}

const std::vector<Overlap>* RegionOverlaps::of(int region, int other) {
  const Region& a = extraction_.regions[at(region)];
  const Region& b = extraction_.regions[at(other)];
  simple_.clear();
  if (a.parameter != b.parameter) return &simple_;
  if (region == other || (a.begin && b.begin)) {
    const std::int64_t from = region == other ? 0 : *a.begin, to = region == other ? 0 : *b.begin;
    const std::int64_t begin = std::max(from, to), end = std::min(from + a.elements, to + b.elements);
    if (begin < end) simple_.push_back({{begin - from, end - from}, from - to});
    return &simple_;
  }
  const auto [found, is_new] = known_.try_emplace({region, other});
  if (is_new) found->second = compare(a, b);
  return found->second.compared ? &found->second.overlaps : nullptr;
}

RegionOverlaps::Covered RegionOverlaps::covered(const RegionPart& part, const std::vector<RegionPart>& others) {
  Covered covered;
  Intervals found;
  for (const RegionPart& other : others) {
    const std::vector<Overlap>* common = of(part.region, other.region);
    covered.compared = covered.compared && common != nullptr;
    if (common == nullptr) continue;
    for (const Overlap& one : *common) {
      const Interval theirs{other.first - one.move, other.first + other.elements - one.move};
      const Interval own = intersect(intersect(one.elements, theirs), {part.first, part.first + part.elements});
      if (!own.empty()) found.push_back(own);
    }
  }
  std::sort(found.begin(), found.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  Intervals& all = covered.elements;
  for (const Interval& one : found) {
    if (all.empty() || all.back().end < one.begin)
      all.push_back(one);
    else
      all.back().end = std::max(all.back().end, one.end);
  }
  return covered;
}

std::int64_t RegionOverlaps::distance(int from_region, std::int64_t from, int to_region, std::int64_t to) const {
  const auto index = [&](int number, std::int64_t element) {
    const Region& region = extraction_.regions[at(number)];
    return BoxStretches(region, extraction_.run.parameters[at(region.parameter)].declared.shape).index(element);
  };
  return index(to_region, to) - index(from_region, from);
}

std::string elements_words(const DeclaredParameter& parameter, const Region& region, std::int64_t first,
                           std::int64_t count) {
  std::int64_t whole = 1;
  for (const std::int64_t size : parameter.shape) whole *= size;
  if (count == whole) return "";
  if (region.begin) return fmt::format("[{}, {})", *region.begin + first, *region.begin + first + count);
  const std::string text = piece_words(region.piece);
  return count == region.elements ? text : fmt::format("{} from its element {} to {}", text, first, first + count);
}

}  // namespace lockstep::live
