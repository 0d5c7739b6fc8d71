// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/case_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "src/symbolic/parametric/named_coordinates.h"

namespace lockstep::parametric {

namespace {

/// Whether a coordinate on one of these axes is one on digits of the other: with experts those of dp are ep and edp,
/// and tp is etp.
bool share_digits(Axis one, Axis other) {
  const auto are = [&](Axis dense, Axis expert) {
    return (one == dense && other == expert) || (one == expert && other == dense);
  };
  return one == other || is_part_of(one, other) || is_part_of(other, one) || are(Axis::dp, Axis::ep) ||
         are(Axis::dp, Axis::edp) || are(Axis::tp, Axis::etp);
}

/// Coordinates of an axis that a schedule singles out.
std::set<int> coordinates_named(const Schedule& schedule, Axis axis) {
  std::set<int> found;
  const auto add = [&](std::optional<Axis> of, const std::vector<int>& coordinates) {
    if (!of || share_digits(axis, *of)) found.insert(coordinates.begin(), coordinates.end());
  };
  visit_named(schedule, [&](const NamedCoordinates& named) { add(named.axis, named.coordinates); });
  for (const Parameter& parameter : schedule.model.parameters()) {
    for (const Parameter::Only& only : parameter.only) add(only.axis, only.coordinates);
    // Stages of parameters are told apart by name only where they are tied over several.
    if (axis == Axis::pp && !parameter.tied.empty() && parameter.stage) found.insert(*parameter.stage);
  }
  return found;
}

/// Stages of the parameters that a file lists, where the steps tell stages apart.
std::set<int> stages_listed(const Scenario& scenario) {
  std::set<int> found;
  if (scenario.preset || !tells_stages_apart(*scenario.schedule)) return found;
  for (const Parameter& parameter : scenario.schedule->model.parameters()) {
    if (parameter.stage) found.insert(*parameter.stage);
  }
  return found;
}

/// By how many stages parameters lie before the end, where they do so at both sizes.
std::set<int> stages_before_end(const Scenario& one, int size, const Scenario& other, int other_size) {
  std::map<std::string, int> offsets;
  for (const Parameter& parameter : one.schedule->model.parameters()) {
    if (parameter.stage) offsets[parameter.name] = size - *parameter.stage;
  }
  std::set<int> found;
  for (const Parameter& parameter : other.schedule->model.parameters()) {
    const auto there = offsets.find(parameter.name);
    if (parameter.stage && there != offsets.end() && there->second == other_size - *parameter.stage)
      found.insert(there->second);
  }
  return found;
}

/// The first sizes of a span that are allowed, two where there are as many.
std::vector<int> first_allowed(const OpenSizes& open, Axis axis, const Span& span) {
  std::vector<int> found;
  const auto look_at = [&](int size) {
    const bool inside = size >= span.least && !(span.most && size > *span.most);
    if (found.size() < 2 && inside && open.allow(open.with(axis, size))) found.push_back(size);
  };
  for (int size = span.least; size < span.least + 8; ++size) look_at(size);
  for (int size = 1; size <= 256; size *= 2) {
    if (size >= span.least + 8) look_at(size);
  }
  return found;
}

/// Sizes from `least` on of which each is a case of its own, where there are few: those that are allowed, and those
/// that no scenario itself refuses. The ones behind them are not looked at.
std::vector<CaseRange> single_sizes(const OpenSizes& open, Axis axis, int least, std::set<int> sizes) {
  for (const Layouts* layouts : open.of) sizes.merge(layouts->dividing(axis));
  std::erase_if(sizes, [&](int size) { return size < least || !open.allow(open.with(axis, size)); });
  const auto refused = [&](const SizeRange& range) {
    return std::any_of(open.of.begin(), open.of.end(), [&](const Layouts* layouts) {
      return layouts->refuses_all({{axis, range}}, std::nullopt);
    });
  };
  std::vector<CaseRange> ranges;
  int next = least;
  int last = sizes.empty() ? least - 1 : *sizes.rbegin();
  // Those in front of the size from which on all are refused may be refused one by one.
  constexpr int most_looked_at = 64;
  for (const Layouts* layouts : open.of) {
    const std::optional<int> all_from = layouts->refused_from(axis);
    if (all_from && *all_from - next <= most_looked_at) last = std::max(last, *all_from - 1);
  }
  for (; next <= last && static_cast<int>(ranges.size()) < most_exact; ++next) {
    if (!refused(SizeRange::exactly(Rational(next)))) ranges.push_back({{next, next}});
  }
  if (!refused(SizeRange::from(next))) {
    ranges.push_back({{next},
                      fmt::format("no size of {} from {} on was found that is allowed, and none is known to be refused",
                                  name_of(axis), next)});
  }
  return ranges;
}

}  // namespace

void SingledOut::add(const SingledOut& other) {
  named.insert(other.named.begin(), other.named.end());
  from_end.insert(other.from_end.begin(), other.from_end.end());
}

bool singles_out(const Layouts& layouts, Axis axis, const Sizes& sizes) {
  const auto scenario = layouts.read(sizes);
  return scenario != nullptr && !coordinates_named(*scenario->schedule, axis).empty();
}

SingledOut singled_out(const Layouts& layouts, Axis axis, const Sizes& one, const Sizes& other) {
  const auto read = layouts.read(one), read_other = layouts.read(other);
  const int size = one.axes.at(axis), other_size = other.axes.at(axis);
  SingledOut found;
  if (size == other_size || !read || !read_other) return found;
  std::set<int> here = coordinates_named(*read->schedule, axis), there = coordinates_named(*read_other->schedule, axis);
  if (axis == Axis::pp) {
    here.merge(stages_listed(*read));
    there.merge(stages_listed(*read_other));
  }
  const auto is_same = [&](int coordinate) { return here.contains(coordinate) && there.contains(coordinate); };
  for (const int coordinate : here) {
    if (is_same(coordinate)) found.named.insert(coordinate);
    // 0 and 1 of two sizes are not both as far from the end where 0 and 1 of either are singled out.
    const int counterpart = coordinate - size + other_size;
    if (coordinate < size && there.contains(counterpart) && !(is_same(coordinate) && is_same(counterpart)))
      found.from_end.insert(size - coordinate);
  }
  return found;
}

std::string too_many_singled_out(const SingledOut& known, Axis axis) {
  return fmt::format("it singles out the coordinate {} of {}, and each smaller size would be a case of its own",
                     *known.named.rbegin(), name_of(axis));
}

std::vector<int> allowed_in(const OpenSizes& together, Axis axis, const Span& span) {
  std::vector<int> sizes = together.of.front()->allowed(axis);
  std::erase_if(sizes, [&](int size) {
    return size < span.least || (span.most && size > *span.most) || !together.allow(together.with(axis, size));
  });
  return sizes.size() < 2 ? first_allowed(together, axis, span) : sizes;
}

std::vector<CaseRange> ranges_of(const OpenSizes& together, Axis axis) {
  std::vector<int> sizes = together.of.front()->allowed(axis);
  std::erase_if(sizes, [&](int size) { return !together.allow(together.with(axis, size)); });
  if (sizes.empty()) sizes = first_allowed(together, axis, {1});
  if (sizes.empty()) return {};
  SingledOut known;
  const auto look_at = [&](int one, int other) {
    for (const Layouts* layouts : together.of)
      known.add(singled_out(*layouts, axis, together.with(axis, one), together.with(axis, other)));
  };
  // Those that are the same at two sizes; others move with the size, as the last stage does.
  const int last = sizes.back(), before = sizes[sizes.size() > 1 ? sizes.size() - 2 : 0];
  look_at(last, before);
  // A stage counted from the end is a named one at some size.
  if (axis == Axis::pp && last != before && *known.named.rbegin() > 0) {
    for (const Layouts* layouts : together.of) {
      known.from_end.merge(stages_before_end(*layouts->read(together.with(axis, last)), last,
                                             *layouts->read(together.with(axis, before)), before));
    }
  }
  int least = std::max(axis == Axis::pp ? 3 : 2, known.least());
  std::vector<CaseRange> ranges;
  std::vector<int> open;
  for (;;) {
    // Also those that are refused beside the base's other sizes: beside others they may be allowed.
    for (int size = static_cast<int>(ranges.size()) + 1; size < std::min(least, most_exact); ++size)
      ranges.push_back({{size, size}});
    if (least > most_exact) {
      ranges.push_back({{most_exact}, too_many_singled_out(known, axis)});
      return ranges;
    }
    open = allowed_in(together, axis, {least});
    if (open.size() < 2) break;
    look_at(open[0], open[1]);
    if (known.least() <= least) break;
    least = known.least();
  }
  if (open.size() > 1) {
    ranges.push_back({{least}});
    return ranges;
  }
  std::set<int> few(sizes.begin(), sizes.end());
  few.insert(open.begin(), open.end());
  for (CaseRange& one : single_sizes(together, axis, least, std::move(few))) ranges.push_back(std::move(one));
  return ranges;
}

}  // namespace lockstep::parametric
