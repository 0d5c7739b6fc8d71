// SPDX-License-Identifier: Apache-2.0
//
// A case is read at layouts of different sizes, and the classes that they have go through the schedule.
#include "src/symbolic/parametric/find_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "src/base/budget.h"
#include "src/symbolic/parametric/names_seen.h"
#include "src/symbolic/parametric/stages_seen.h"

namespace lockstep::parametric {

namespace {

Representative representative(const Layouts& layouts, const Case& one, const Sizes& sizes,
                              const std::set<std::string>& known, bool record) {
  Representative result;
  result.sizes = sizes;
  result.scenario = layouts.read(sizes);
  Open open;
  open.least = one.least;
  open.most = one.most;
  open.least_micro_batches = one.least_micro_batches;
  open.most_micro_batches = one.most_micro_batches;
  open.for_every_size = true;
  result.world = std::make_unique<World>(*result.scenario->schedule, open);
  require_decided(result.scenario->decided_conditions, *result.world);
  result.selections = std::make_unique<StepSelections>(*result.world);
  for (const Class& members : result.selections->classes()) {
    if (known.count(members.key) == 0)
      result.results.push_back(run_class(*result.world, *result.selections, members, record));
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
      const bool seen =
          std::any_of(one.representatives.begin(), one.representatives.end(),
                      [&](const Representative& representative) { return representative.sizes == sizes; });
      if (!scenario || seen) continue;
      if (!one.representatives.empty() && steps_text(*scenario) != steps_text(*one.representatives.front().scenario)) {
        throw OutOfReach("", fmt::format("the schedule has other steps at {} than at {}", lockstep::describe(sizes),
                                         lockstep::describe(one.representatives.front().sizes)));
      }
      one.representatives.push_back(representative(layouts, one, sizes, known, record));
      names.add(scenario->schedule);
      for (const ClassResult& result : one.representatives.back().results) known.insert(result.members->key);
      if (scenario->preset && one.least.contains(Axis::pp)) stages.add({one.representatives.back().selections.get()});
    }
    stages.require_all(layouts);
    names.require_all();
  };
  try {
    take_as_far_as_can_be(one, all);
  } catch (const NeedsUnrolling& need) {
    // The file asks for every number of micro-batches: one of them would be another question.
    if (!layouts.any_micro_batches()) throw;
    one.representatives.clear();
    one.limit = Proof::Limit{parametric::describe(one), need.step, need.why};
  }
}

}  // namespace

void take_as_far_as_can_be(Case& one, const std::function<void()>& enter) {
  try {
    enter();
  } catch (const DependsOnSizes& limit) {
    one.representatives.clear();
    one.limit = Proof::Limit{parametric::describe(one), limit.step, limit.what()};
    one.depends_on = limit.conditions;
  } catch (const OutOfReach& limit) {
    one.representatives.clear();
    one.limit = Proof::Limit{parametric::describe(one), limit.step, limit.what()};
  } catch (const OverBudget& over) {
    one.representatives.clear();
    one.limit = Proof::Limit{parametric::describe(one), "", over.what()};
  } catch (const InputError& error) {
    // The place is one in a text that nobody wrote.
    one.representatives.clear();
    one.limit = Proof::Limit{parametric::describe(one), "", error.diagnostics().front().message};
  } catch (const ExpressionError& error) {
    one.representatives.clear();
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
    for_each_case({{&layouts}, layouts.axes(), layouts.micro_batches(), layouts.base()}, cases,
                  [&](Case& one, const std::vector<Sizes>& sizes) { enter(layouts, one, sizes, record); });
  } catch (const OverBudget& over) {
    // What was found in the cases before stands.
    cases.emplace_back().limit = Proof::Limit{"", "", over.what()};
  }
  return cases;
}

}  // namespace lockstep::parametric
