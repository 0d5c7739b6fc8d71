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

/// Sizes up to which each one is a case of its own where a schedule singles coordinates out.
constexpr int most_exact = 40;

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

/// The first sizes from `least` on that are allowed, two where there are as many.
std::vector<int> allowed_from(const OpenSizes& open, Axis axis, int least) {
  std::vector<int> found;
  const auto look_at = [&](int size) {
    if (found.size() < 2 && open.allow(open.with(axis, size))) found.push_back(size);
  };
  for (int size = least; size < least + 8; ++size) look_at(size);
  for (int size = 1; size <= 256; size *= 2) {
    if (size >= least + 8) look_at(size);
  }
  return found;
}

/// The steps at a size of an axis, with the other axes as they are in base, and as small as can be: a factor may be
/// compared with the number of all ranks.
std::vector<std::string> steps_at(const OpenSizes& open, Axis axis, int size) {
  std::vector<std::string> texts;
  for (const Layouts* layouts : open.of) {
    Sizes alone = open.base;
    for (const Axis other : open.axes) alone.axes[other] = layouts->allowed(other).front();
    alone.axes[axis] = size;
    for (const Sizes& sizes : {open.with(axis, size), alone}) {
      const std::shared_ptr<const Scenario> scenario = layouts->read(sizes);
      texts.push_back(scenario ? steps_text(*scenario) : "");
    }
  }
  return texts;
}

/// The largest size from `least` on at which a framework has other steps than beyond it, as it does where it leaves out
/// a factor that is the number of ranks: of the first few sizes, the file's, and those that a condition of its
/// framework compares with a number.
std::optional<int> last_with_other_steps(const OpenSizes& open, Axis axis, int least) {
  constexpr int most = 16, few = 3;
  std::set<int> sizes;
  for (int size = least; size < least + few; ++size) sizes.insert(size);
  for (const Layouts* layouts : open.of) {
    for (const auto& [text, condition] : layouts->decided_conditions()) {
      for (const int number : condition.numbers) sizes.insert({number - 1, number});
    }
    sizes.insert(layouts->own().axes.at(axis));
  }
  for (auto size = sizes.rbegin(); size != sizes.rend() && *size >= least; ++size) {
    if (*size > most || !open.allow(open.with(axis, *size))) continue;
    const std::vector<int> beyond = allowed_from(open, axis, *size + 1);
    if (beyond.size() < 2) continue;
    const auto steps = steps_at(open, axis, beyond[0]);
    if (steps_at(open, axis, beyond[1]) != steps) return std::nullopt;
    if (steps_at(open, axis, *size) != steps) return *size;
  }
  return std::nullopt;
}

/// The largest number that a condition on this axis and one other has, up to which each size is a case of its own: a
/// look along the axis alone does not show what both decide together. 0 where there is none.
int last_compared_with_others(const OpenSizes& open, Axis axis) {
  constexpr int most = 8;
  int last = 0;
  for (const Layouts* layouts : open.of) {
    for (const auto& [text, condition] : layouts->decided_conditions()) {
      const auto is_named = [&, &names = condition.names](Axis one) {
        return names.contains(std::string(name_of(one)));
      };
      const auto others = std::count_if(open.axes.begin(), open.axes.end(),
                                        [&](Axis other) { return other != axis && is_named(other); });
      if (others != 1 || !is_named(axis)) continue;
      for (const int number : condition.numbers) last = number <= most ? std::max(last, number) : last;
    }
  }
  return last;
}

/// Coordinates that are singled out at both sizes, counted from the first on and, as the last but one is, from the end.
struct SingledOut {
  std::set<int> named = {0}, from_end = {1};
  void add(const SingledOut& other) {
    named.insert(other.named.begin(), other.named.end());
    from_end.insert(other.from_end.begin(), other.from_end.end());
  }
  /// The least size at which all of them differ. A smaller one has less coordinates, or some of them are one.
  int least() const { return *named.rbegin() + *from_end.rbegin() + 1; }
};

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
  const int last = sizes.empty() ? least - 1 : *sizes.rbegin();
  for (; next <= last && static_cast<int>(ranges.size()) < most_exact; ++next) {
    if (!refused(SizeRange::exactly(Rational(next)))) ranges.push_back({next, 1, next, next, next, ""});
  }
  if (!refused(SizeRange::from(next))) {
    ranges.push_back({std::nullopt, next, next, next, next,
                      fmt::format("no size of {} from {} on was found that is allowed, and none is known to be refused",
                                  name_of(axis), next)});
  }
  return ranges;
}

}  // namespace

std::vector<CaseRange> ranges_of(const OpenSizes& together, Axis axis) {
  std::vector<int> sizes = together.of.front()->allowed(axis);
  std::erase_if(sizes, [&](int size) { return !together.allow(together.with(axis, size)); });
  if (sizes.empty()) sizes = allowed_from(together, axis, 1);
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
  const auto each_until = [&](int end) {
    // Also those that are refused beside the base's other sizes: beside others they may be allowed.
    for (int size = static_cast<int>(ranges.size()) + 1; size < std::min(end, most_exact); ++size)
      ranges.push_back({size, 1, size, size, size, ""});
  };
  std::vector<int> open;
  for (;;) {
    each_until(least);
    if (least > most_exact) {
      ranges.push_back(
          {std::nullopt, most_exact, 1, 1, 1,
           fmt::format("it singles out the coordinate {} of {}, and each smaller size would be a case of its "
                       "own",
                       *known.named.rbegin(), name_of(axis))});
      return ranges;
    }
    const int most =
        std::max(last_with_other_steps(together, axis, least).value_or(0), last_compared_with_others(together, axis));
    least = std::max(least, most + 1);
    each_until(least);
    open.clear();
    std::copy_if(sizes.begin(), sizes.end(), std::back_inserter(open), [&](int size) { return size >= least; });
    if (open.size() < 2) open = allowed_from(together, axis, least);
    if (open.size() < 2) break;
    // A framework may single out others behind a size that its conditions name.
    look_at(open[0], open[1]);
    if (known.least() <= least) break;
    least = known.least();
  }
  if (open.size() > 1) {
    ranges.push_back({std::nullopt, least, open[0], open[1], open.back(), ""});
    return ranges;
  }
  std::set<int> few(sizes.begin(), sizes.end());
  few.insert(open.begin(), open.end());
  for (CaseRange& one : single_sizes(together, axis, least, std::move(few))) ranges.push_back(std::move(one));
  return ranges;
}

}  // namespace lockstep::parametric
