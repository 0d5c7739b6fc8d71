// SPDX-License-Identifier: Apache-2.0
//
// Sizes at which all names of an axis can differ go through the same; each smaller one is a case of its own. A case is
// read at layouts of different sizes, and the classes that they have go through the schedule.
#include "src/symbolic/parametric/find_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "src/base/budget.h"
#include "src/symbolic/parametric/named_coordinates.h"
#include "src/symbolic/parametric/names_seen.h"
#include "src/symbolic/parametric/stages_seen.h"

namespace lockstep::parametric {

namespace {

/// Sizes of an axis, or numbers of micro-batches, that belong to one case, and some of them.
struct Range {
  std::optional<int> exact;  ///< none: all from `least` on
  int least = 1, first = 1, second = 1, last = 1;
  std::string unseen;  ///< why none of these sizes is looked at; "" where some are
};

/// Sizes up to which each one is a case of its own where a schedule singles coordinates out.
constexpr int most_exact = 40;

/// Coordinates of an axis that a schedule singles out.
std::set<int> coordinates_named(const Schedule& schedule, Axis axis) {
  std::set<int> found;
  const auto add = [&](std::optional<Axis> of, const std::vector<int>& coordinates) {
    if (!of || *of == axis || is_part_of(axis, *of) || is_part_of(*of, axis))
      found.insert(coordinates.begin(), coordinates.end());
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
std::vector<Range> single_sizes(const OpenSizes& open, Axis axis, int least, std::set<int> sizes) {
  for (const Layouts* layouts : open.of) sizes.merge(layouts->dividing(axis));
  std::erase_if(sizes, [&](int size) { return size < least || !open.allow(open.with(axis, size)); });
  const auto refused = [&](const SizeRange& range) {
    return std::any_of(open.of.begin(), open.of.end(), [&](const Layouts* layouts) {
      return layouts->refuses_all({{axis, range}}, std::nullopt);
    });
  };
  std::vector<Range> ranges;
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

std::vector<Range> ranges_of(const OpenSizes& together, Axis axis) {
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
  std::vector<Range> ranges;
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
  for (Range& one : single_sizes(together, axis, least, std::move(few))) ranges.push_back(std::move(one));
  return ranges;
}

Specimen specimen(const Layouts& layouts, const Case& one, const Sizes& sizes, const std::set<std::string>& known,
                  bool record) {
  Specimen result;
  result.sizes = sizes;
  result.scenario = layouts.read(sizes);
  Open open;
  open.least = one.least;
  open.least_micro_batches = one.least_micro_batches;
  open.for_every_size = true;
  result.world = std::make_unique<World>(*result.scenario->schedule, open);
  require_decided(result.scenario->decided_conditions, *result.world);
  result.choices = std::make_unique<Choices>(*result.world);
  for (const Class& members : result.choices->classes()) {
    if (known.count(members.key) == 0)
      result.results.push_back(run_class(*result.world, *result.choices, members, record));
  }
  return result;
}

/// Takes the classes of some layouts of a case through the schedule, of the later ones those that the earlier ones
/// lack.
void enter(const Layouts& layouts, Case& one, const std::vector<Sizes>& sizes_of_case, bool record) {
  const auto all = [&] {
    std::set<std::string> known;
    StagesSeen stages;
    NamesSeen names;
    for (const Sizes& sizes : sizes_of_case) {
      const std::shared_ptr<const Scenario> scenario = layouts.read(sizes);
      const bool seen = std::any_of(one.specimens.begin(), one.specimens.end(),
                                    [&](const Specimen& specimen) { return specimen.sizes == sizes; });
      if (!scenario || seen) continue;
      if (!one.specimens.empty() && steps_text(*scenario) != steps_text(*one.specimens.front().scenario)) {
        throw OutOfReach("", fmt::format("the schedule has other steps at {} than at {}", lockstep::describe(sizes),
                                         lockstep::describe(one.specimens.front().sizes)));
      }
      one.specimens.push_back(specimen(layouts, one, sizes, known, record));
      names.add(scenario->schedule);
      for (const ClassResult& result : one.specimens.back().results) known.insert(result.members->key);
      if (scenario->preset && one.least.contains(Axis::pp)) stages.add({one.specimens.back().choices.get()});
    }
    stages.require_all(layouts);
    names.require_all();
  };
  try {
    take_as_far_as_can_be(one, all);
  } catch (const NeedsUnrolling& need) {
    // The file asks for every number of micro-batches: one of them would be another question.
    if (!layouts.any_micro_batches()) throw;
    one.specimens.clear();
    one.limit = Proof::Limit{parametric::describe(one), need.step, need.why};
  }
}

/// Whether one of the scenarios itself refuses all sizes of a case.
bool is_refused(const OpenSizes& open, const Case& one) {
  std::map<Axis, SizeRange> sizes;
  for (const auto& [axis, size] : one.exact) sizes[axis] = SizeRange::exactly(Rational(size));
  for (const auto& [axis, least] : one.least) sizes[axis] = SizeRange::from(least);
  std::optional<SizeRange> micro_batches;
  if (one.exact_micro_batches) micro_batches = SizeRange::exactly(Rational(*one.exact_micro_batches));
  if (one.least_micro_batches) micro_batches = SizeRange::from(*one.least_micro_batches);
  return std::any_of(open.of.begin(), open.of.end(),
                     [&](const Layouts* layouts) { return layouts->refuses_all(sizes, micro_batches); });
}

/// Larger sizes of a case, where the first ones are refused: a coordinate, or a rule, may ask for them.
std::vector<Sizes> larger_sizes(const OpenSizes& open, const Case& one, const Sizes& first) {
  std::vector<Sizes> found;
  for (const int size : {4, 6, 8, 12, 16}) {
    Sizes sizes = first;
    for (const auto& [axis, least] : one.least) sizes.axes[axis] = std::max(least, size);
    if (one.least_micro_batches) sizes = open.with_allowed_micro_batches(sizes);
    if (open.allow(sizes)) found.push_back(sizes);
    if (found.size() == 2 || one.least.empty()) break;
  }
  return found;
}

/// "its sizes fall into more than 5000 cases, each of which is looked at: 41 of dp times 41 of cp"
std::string too_many_cases(const std::vector<Axis>& axes, const std::vector<std::vector<Range>>& ranges, double most) {
  std::string factors;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (ranges[i].size() > 1)
      factors += fmt::format("{}{} of {}", factors.empty() ? "" : " times ", ranges[i].size(), name_of(axes[i]));
  }
  return fmt::format("its sizes fall into more than {:.0f} cases, each of which would be looked at: {}", most, factors);
}

/// Why one of them refuses these sizes.
std::string why_refused(const OpenSizes& open, const Sizes& sizes) {
  for (const Layouts* layouts : open.of) {
    if (!layouts->read(sizes)) return layouts->refusal(sizes);
  }
  return "";
}

}  // namespace

bool OpenSizes::allow(const Sizes& sizes) const {
  return std::all_of(of.begin(), of.end(), [&](const Layouts* layouts) { return layouts->read(sizes) != nullptr; });
}

Sizes OpenSizes::with(Axis axis, int size) const {
  Sizes sizes = base;
  sizes.axes[axis] = size;
  return with_allowed_micro_batches(sizes);
}

Sizes OpenSizes::with_allowed_micro_batches(const Sizes& sizes) const {
  if (!micro_batches) return sizes;
  std::vector<int> counts;
  for (const Layouts* layouts : of)
    counts.insert(counts.end(), layouts->allowed_micro_batches().begin(), layouts->allowed_micro_batches().end());
  return with_allowed_count(sizes, counts, [&](const Sizes& some) { return allow(some); });
}

void take_as_far_as_can_be(Case& one, const std::function<void()>& enter) {
  try {
    enter();
  } catch (const OutOfReach& limit) {
    one.specimens.clear();
    one.limit = Proof::Limit{parametric::describe(one), limit.step, limit.what()};
  } catch (const OverBudget& over) {
    one.specimens.clear();
    one.limit = Proof::Limit{parametric::describe(one), "", over.what()};
  } catch (const InputError& error) {
    // The place is one in a text that nobody wrote.
    one.specimens.clear();
    one.limit = Proof::Limit{parametric::describe(one), "", error.diagnostics().front().message};
  } catch (const ExpressionError& error) {
    one.specimens.clear();
    one.limit = Proof::Limit{parametric::describe(one), "", error.what()};
  }
}

std::string steps_text(const Scenario& scenario) {
  const Json* schedule = scenario.resolved.find("schedule");
  return schedule == nullptr ? "" : write_json(*schedule);
}

std::vector<Case> find_cases(const Layouts& layouts, bool record) {
  std::vector<Case> cases;
  try {
    for_each_case({{&layouts}, layouts.axes(), layouts.micro_batches(), layouts.base()},
                  [&](Case one, const std::vector<Sizes>& sizes) {
                    if (!one.limit) enter(layouts, one, sizes, record);
                    cases.push_back(std::move(one));
                  });
  } catch (const OverBudget& over) {
    // What was found in the cases before stands.
    cases.emplace_back().limit = Proof::Limit{"", "", over.what()};
  }
  return cases;
}

void for_each_case(const OpenSizes& open, const std::function<void(Case, const std::vector<Sizes>&)>& enter) {
  std::vector<std::vector<Range>> ranges;
  ranges.reserve(open.axes.size());
  for (const Axis axis : open.axes) ranges.push_back(ranges_of(open, axis));
  if (std::any_of(ranges.begin(), ranges.end(), [](const auto& list) { return list.empty(); })) return;
  std::vector<Range> micro_batches = {{std::nullopt, 1, 1, 1, 1, ""}};
  if (open.micro_batches) {
    std::vector<int> several = open.of.front()->allowed_micro_batches();
    std::erase(several, 1);
    if (several.empty()) several = {2, 3};
    micro_batches = {{1, 1, 1, 1, 1, ""}, {std::nullopt, 2, several.front(), several.back(), several.back(), ""}};
  }
  // Each is read, and goes through the schedule.
  constexpr double most_cases = 5000;
  double count_of_cases = static_cast<double>(micro_batches.size());
  for (const auto& list : ranges) count_of_cases *= static_cast<double>(list.size());
  if (count_of_cases > most_cases) throw OverBudget(too_many_cases(open.axes, ranges, most_cases));
  std::vector<std::size_t> at(ranges.size(), 0);
  for (;;) {
    for (const Range& count : micro_batches) {
      Case one;
      Sizes first = open.base, second = open.base;
      // With more stages more kinds of layers come to lie in the middle.
      std::optional<int> most_stages;
      std::string unseen;
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const Range& range = ranges[i][at[i]];
        const Axis axis = open.axes[i];
        if (range.exact) {
          one.exact[axis] = *range.exact;
        } else {
          one.least[axis] = range.least;
        }
        if (!range.unseen.empty()) unseen = range.unseen;
        first.axes[axis] = range.first;
        second.axes[axis] = range.second;
        if (axis == Axis::pp && !range.exact) most_stages = range.last;
      }
      if (open.micro_batches) {
        one.exact_micro_batches = count.exact;
        if (!count.exact) one.least_micro_batches = count.least;
        first.micro_batches = count.first;
        second.micro_batches = count.second;
      }
      std::vector<Sizes> sizes = {first, second};
      if (most_stages) {
        sizes.push_back(first);
        sizes.back().axes[Axis::pp] = *most_stages;
      }
      if (one.least_micro_batches) {
        for (Sizes& some : sizes) some = open.with_allowed_micro_batches(some);
      }
      // What holds at the sizes of the files is what their user looks at first.
      for (const Layouts* layouts : open.of) {
        if (one.holds(layouts->own())) sizes.push_back(layouts->own());
      }
      const auto allowed = [&] {
        return std::any_of(sizes.begin(), sizes.end(), [&](const Sizes& some) { return open.allow(some); });
      };
      if (unseen.empty() && !allowed()) {
        if (is_refused(open, one)) continue;
        for (Sizes& larger : larger_sizes(open, one, first)) sizes.push_back(std::move(larger));
      }
      if (!unseen.empty()) {
        one.limit = Proof::Limit{parametric::describe(one), "", unseen};
      } else if (!allowed()) {
        one.limit = Proof::Limit{parametric::describe(one), "",
                                 "none of the sizes that were tried is allowed: " + why_refused(open, sizes.front())};
      }
      enter(std::move(one), sizes);
    }
    std::size_t digit = 0;
    while (digit < at.size() && ++at[digit] == ranges[digit].size()) at[digit++] = 0;
    if (digit == at.size()) break;
  }
}

}  // namespace lockstep::parametric
