// SPDX-License-Identifier: Apache-2.0
//
// Sizes at which all names of an axis can differ go through the same; each smaller one is a case of its own. A case is
// read at layouts of different sizes, and the classes that they have go through the schedule.
#include "src/symbolic/parametric/find_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "src/base/budget.h"
#include "src/symbolic/parametric/case_ranges.h"
#include "src/symbolic/parametric/names_seen.h"
#include "src/symbolic/parametric/stages_seen.h"

namespace lockstep::parametric {

namespace {

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
std::string too_many_cases(const std::vector<Axis>& axes, const std::vector<std::vector<CaseRange>>& ranges,
                           double most) {
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
  std::vector<std::vector<CaseRange>> ranges;
  ranges.reserve(open.axes.size());
  for (const Axis axis : open.axes) ranges.push_back(ranges_of(open, axis));
  if (std::any_of(ranges.begin(), ranges.end(), [](const auto& list) { return list.empty(); })) return;
  std::vector<CaseRange> micro_batches = {{std::nullopt, 1, 1, 1, 1, ""}};
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
    for (const CaseRange& count : micro_batches) {
      Case one;
      Sizes first = open.base, second = open.base;
      // With more stages more kinds of layers come to lie in the middle.
      std::optional<int> most_stages;
      std::string unseen;
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const CaseRange& range = ranges[i][at[i]];
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
