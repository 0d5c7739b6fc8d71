// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "lockstep/tensor_file.h"
#include "src/numeric/parallel.h"
#include "src/tensors/element.h"

namespace lockstep {

namespace {

using Range = TensorDifference::Range;

// So many elements are looked at one by one.
constexpr std::size_t few = 64;
// Parts that are compared before their findings are put together.
constexpr std::size_t parts_at_once = 256;

/// What differs in one part; ranges are counted and the first ones kept.
struct PartDifference {
  GradientHash hash_a, hash_b;
  std::uint64_t elements = 0, ranges = 0;
  std::vector<Range> first;
  Range last;  ///< its end decides whether the next part goes on with it
};

class PartComparison {
 public:
  PartComparison(const tensors::Part& part, std::uint64_t first, std::size_t most_ranges)
      : part_(part), first_(first), most_ranges_(most_ranges) {}

  PartDifference run(const TensorPlace& a, const TensorPlace& b) {
    thread_local tensors::Elements elements_a, elements_b;
    a_ = &elements_a;
    b_ = &elements_b;
    elements_a.read(a, part_.begin, part_.count);
    elements_b.read(b, part_.begin, part_.count);
    result_.hash_a = hash(elements_a, 0, part_.count);
    result_.hash_b = hash(elements_b, 0, part_.count);
    if (!(result_.hash_a == result_.hash_b)) find(0, part_.count);
    return std::move(result_);
  }

 private:
  GradientHash hash(const tensors::Elements& elements, std::size_t begin, std::size_t count) const {
    return elements.hash(begin, count, first_ + part_.begin + begin);
  }

  // The hashes of these elements differ.
  void find(std::size_t begin, std::size_t end) {
    if (end - begin <= few) {
      for (std::size_t i = begin; i < end; ++i) {
        if (a_->differs(*b_, i)) add(i);
      }
      return;
    }
    const std::size_t middle = begin + (end - begin) / 2;
    for (const auto& [from, to] : {std::pair(begin, middle), std::pair(middle, end)}) {
      if (!(hash(*a_, from, to - from) == hash(*b_, from, to - from))) find(from, to);
    }
  }

  void add(std::size_t index) {
    const std::uint64_t at = part_.begin + index;
    ++result_.elements;
    if (result_.ranges > 0 && result_.last.end == at) {
      result_.last.end = at + 1;
      if (result_.ranges <= result_.first.size()) result_.first.back().end = at + 1;
      return;
    }
    ++result_.ranges;
    result_.last = {at, at + 1, {}, {}};
    if (result_.first.size() < most_ranges_) result_.first.push_back({at, at + 1, a_->text(index), b_->text(index)});
  }

  const tensors::Part& part_;
  std::uint64_t first_;
  std::size_t most_ranges_;
  const tensors::Elements *a_ = nullptr, *b_ = nullptr;
  PartDifference result_;
};

}  // namespace

TensorDifference compare_tensors(const TensorPlace& a, const TensorPlace& b, std::uint64_t first,
                                 std::size_t most_ranges, int threads) {
  std::vector<tensors::Part> parts;
  tensors::add_parts(parts, 0, a.stored().count, *a.stored().hashed);
  TensorDifference result;
  std::uint64_t last_end = 0;
  most_ranges = std::max<std::size_t>(most_ranges, 1);  // the borders of parts need one
  for (std::size_t done = 0; done < parts.size(); done += parts_at_once) {
    const std::size_t count = std::min(parts_at_once, parts.size() - done);
    std::vector<PartDifference> found(count);
    numeric::parallel_for(count, numeric::thread_count(threads), [&](std::size_t i) {
      found[i] = PartComparison(parts[done + i], first, most_ranges).run(a, b);
    });
    for (PartDifference& part : found) {
      result.hash_a += part.hash_a;
      result.hash_b += part.hash_b;
      result.elements += part.elements;
      if (part.ranges == 0) continue;
      // A range may go on over the border of two parts.
      const bool goes_on = !part.first.empty() && result.ranges > 0 && part.first.front().begin == last_end;
      if (goes_on && result.ranges <= result.first.size()) result.first.back().end = part.first.front().end;
      result.ranges += part.ranges - (goes_on ? 1 : 0);
      for (std::size_t i = goes_on ? 1 : 0; i < part.first.size() && result.first.size() < most_ranges; ++i)
        result.first.push_back(std::move(part.first[i]));
      last_end = part.last.end;
    }
  }
  return result;
}

}  // namespace lockstep
