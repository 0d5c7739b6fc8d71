// SPDX-License-Identifier: Apache-2.0
//
// Where a condition on sizes changes is found by asking about ranges of sizes: the more of them, the less often there
// is one answer, so that the last size up to which, and the first from which on, there is one are found by halving.
#include "src/symbolic/parametric/case_splits.h"

#include <algorithm>
#include <cmath>

#include "src/expression/node.h"

namespace lockstep::parametric {

namespace {

/// The first that there is not.
constexpr int farthest = largest_size + 1;
/// So few sizes, all dimensions that a condition speaks of together, are halved until each is one.
constexpr double most_halved = 4096;

/// Whether a name in a condition is, or may hang on, a dimension.
bool is_about(const std::string& name, Dimension dimension) {
  if (!dimension) return name == "micro_batches";
  const std::optional<Axis> named = axis_named(name);
  if (!named) return name == "world";
  // Sizes of the expert mesh are quotients of those of the other one.
  return *named == *dimension || is_part_of(*dimension, *named) || is_expert_axis(*named) || is_expert_axis(*dimension);
}

/// Whether a condition may speak of a dimension.
bool asks_about(const Expression::Node& condition, Dimension dimension) {
  return expression::any_node(condition, [&](const Expression::Node& node) {
    return node.kind == Expression::Node::Kind::name && is_about(node.text, dimension);
  });
}

/// The first number above `no` at which `holds` does, where it does at `yes` and from the first one on.
template <class Holds>
int first_of(int no, int yes, const Holds& holds) {
  while (yes - no > 1) {
    const int middle = no + (yes - no) / 2;
    (holds(middle) ? yes : no) = middle;
  }
  return yes;
}

/// How much is left to be split: sizes without end count more than any number of others.
double extent(const CaseSizes& sizes, const std::vector<Dimension>& dimensions) {
  constexpr double endless = 1e6;
  double sum = 0;
  for (const Dimension dimension : dimensions) {
    const std::optional<Span> span = span_of(sizes, dimension);
    if (span) sum += span->most ? std::log2(*span->most - span->least + 1) : endless;
  }
  return sum;
}

}  // namespace

std::optional<Span> span_of(const CaseSizes& sizes, Dimension dimension) {
  if (!dimension) {
    if (!sizes.least_micro_batches) return std::nullopt;
    return Span{*sizes.least_micro_batches, sizes.most_micro_batches};
  }
  const auto least = sizes.least.find(*dimension), most = sizes.most.find(*dimension);
  if (least == sizes.least.end()) return std::nullopt;
  return Span{least->second, most == sizes.most.end() ? std::nullopt : std::optional(most->second)};
}

CaseSizes with_span(CaseSizes sizes, Dimension dimension, Span span) {
  const bool single = span.most == span.least;
  if (!dimension) {
    sizes.exact_micro_batches = single ? std::optional(span.least) : std::nullopt;
    sizes.least_micro_batches = single ? std::nullopt : std::optional(span.least);
    sizes.most_micro_batches = single ? std::nullopt : span.most;
    return sizes;
  }
  for (std::map<Axis, int>* bounds : {&sizes.exact, &sizes.least, &sizes.most}) bounds->erase(*dimension);
  (single ? sizes.exact : sizes.least)[*dimension] = span.least;
  if (!single && span.most) sizes.most[*dimension] = *span.most;
  return sizes;
}

std::vector<Dimension> dimensions_of(const CaseSizes& sizes) {
  std::vector<Dimension> dimensions;
  dimensions.reserve(sizes.least.size() + 1);
  for (const auto& [axis, least] : sizes.least) dimensions.emplace_back(axis);
  if (sizes.least_micro_batches) dimensions.emplace_back(std::nullopt);
  return dimensions;
}

std::vector<CaseSizes> single_sizes_of(const CaseSizes& sizes, Dimension dimension, Span span) {
  std::vector<CaseSizes> parts;
  for (int size = span.least; size <= *span.most; ++size) parts.push_back(with_span(sizes, dimension, {size, size}));
  return parts;
}

SizeRanges ranges_of(const CaseSizes& sizes) {
  const auto range = [](const Span& span) {
    SizeRange found = SizeRange::from(span.least);
    if (span.most) found.high = Rational(*span.most);
    return found;
  };
  SizeRanges ranges;
  for (const auto& [axis, size] : sizes.exact) ranges.first[axis] = SizeRange::exactly(Rational(size));
  for (const auto& [axis, least] : sizes.least) ranges.first[axis] = range(*span_of(sizes, axis));
  if (sizes.exact_micro_batches) ranges.second = SizeRange::exactly(Rational(*sizes.exact_micro_batches));
  if (const auto span = span_of(sizes, std::nullopt)) ranges.second = range(*span);
  return ranges;
}

std::vector<CaseSizes> split(const CaseSizes& sizes, const Expression::Node& condition, const TruthAt& truth_at) {
  std::vector<Dimension> dimensions = dimensions_of(sizes);
  std::erase_if(dimensions, [&](Dimension dimension) { return !asks_about(condition, dimension); });
  std::vector<CaseSizes> best;
  double least_left = 0;
  const auto consider = [&](Dimension dimension, Span whole, int first_of_second, bool second_is_left) {
    std::vector<CaseSizes> parts = {with_span(sizes, dimension, {whole.least, first_of_second - 1}),
                                    with_span(sizes, dimension, {first_of_second, whole.most})};
    const double left = extent(parts[second_is_left ? 1 : 0], dimensions);
    if (!best.empty() && left >= least_left) return;
    best = std::move(parts);
    least_left = left;
  };
  for (const Dimension dimension : dimensions) {
    const Span whole = *span_of(sizes, dimension);
    const auto decided = [&](int from, std::optional<int> to) {
      return truth_at(with_span(sizes, dimension, {from, to})).has_value();
    };
    const int last = whole.most.value_or(farthest);
    if (decided(last, whole.most)) {
      const int first = first_of(whole.least, last, [&](int from) { return decided(from, whole.most); });
      consider(dimension, whole, first, false);
    }
    // Without end there may be no end of such parts.
    if (whole.most && decided(whole.least, whole.least))
      consider(dimension, whole, first_of(whole.least, last, [&](int to) { return !decided(whole.least, to); }), true);
  }
  if (!best.empty()) return best;
  CaseSizes corner = sizes;
  for (const Dimension dimension : dimensions) {
    const int least = span_of(sizes, dimension)->least;
    corner = with_span(corner, dimension, {least, least});
  }
  if (dimensions.empty() || extent(sizes, dimensions) > std::log2(most_halved) || !truth_at(corner)) return {};
  const auto longest = std::max_element(dimensions.begin(), dimensions.end(), [&](Dimension a, Dimension b) {
    return extent(sizes, {a}) < extent(sizes, {b});
  });
  const Span whole = *span_of(sizes, *longest);
  consider(*longest, whole, whole.least + (*whole.most - whole.least) / 2 + 1, true);
  return best;
}

}  // namespace lockstep::parametric
