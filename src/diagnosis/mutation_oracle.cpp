// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mutation_oracle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/parametric.h"
#include "src/base/counted.h"
#include "src/diagnosis/engines.h"
#include "src/diagnosis/other_tests.h"
#include "src/diagnosis/outcome_verdict.h"
#include "src/diagnosis/shrink.h"

namespace lockstep::diagnosis {

namespace {

/// What the parametric engine says beside the verdict that is known.
void ask_parametric(const Schedule& schedule, MutantOutcome& outcome) {
  using Found = ParametricResult::Verdict;
  const ParametricResult result = run_parametric(schedule);
  if (result.verdict == Found::undecided) {
    outcome.parametric_limit =
        result.undecided_step.empty() ? result.why : fmt::format("{}: {}", result.undecided_step, result.why);
    return;
  }
  outcome.parametric_wrong = result.verdict != Found::match;
  const bool agree = result.verdict == Found::match      ? outcome.verdict == Verdict::match
                     : result.verdict == Found::mismatch ? outcome.verdict == Verdict::mismatch
                                                         : outcome.verdict == Verdict::race;
  if (!agree)
    throw InternalError(fmt::format("the parametric engine says {}, the symbolic engine {}",
                                    result.verdict == Found::match      ? "match"
                                    : result.verdict == Found::mismatch ? "mismatch"
                                                                        : "race",
                                    name_of(outcome.verdict)));
}

bool matches(const std::shared_ptr<const Scenario>& scenario) {
  if (scenario == nullptr) return false;
  return check_scenario(scenario, CheckOptions::verdict_alone()).verdict == Verdict::match;
}

std::string describe(const std::map<std::string, int>& axes, const Scenario& scenario) {
  std::string text;
  for (const auto& [axis, size] : axes) text += fmt::format("{} {}, ", axis, size);
  const int most = most_micro_batches(scenario);
  const std::vector<int>& counts = scenario.schedule->batch.micro_batch_counts;
  const bool alike = std::all_of(counts.begin(), counts.end(), [&](int count) { return count == most; });
  return text + (alike ? "" : "at most ") + counted(most, "micro-batch");
}

}  // namespace

bool MutationOracle::is_right(std::vector<Step> steps) {
  if (!steps_->are_valid(steps)) return false;
  Schedule& schedule = steps_->schedule();
  schedule.steps = std::move(steps);
  try {
    const Timeline timeline = walk(schedule);
    return timeline.outcome.kind == Outcome::Kind::complete && SymbolicEngine(schedule, timeline).run().match;
  } catch (const InputError&) {
    return false;
  }
}

MutantOutcome MutationOracle::judge(std::vector<Step> steps) {
  MutantOutcome outcome;
  if (!steps_->are_valid(steps)) return outcome;
  Schedule& schedule = steps_->schedule();
  schedule.steps = std::move(steps);
  CheckResult result;
  Scenario scenario;
  scenario.schedule = std::shared_ptr<const Schedule>(steps_, &schedule);
  result.scenario = std::make_shared<const Scenario>(std::move(scenario));
  try {
    result.timeline = std::make_shared<const Timeline>(walk(schedule));
    outcome.verdict = verdict_of(result.timeline->outcome.kind);
    if (!result.timeline->step_ends.empty()) {
      run_engine(engine_row("symbolic"), result, {});
      // A step that was completed comes before whatever ended the run.
      if (!symbolic_of(result)->match) outcome.verdict = Verdict::mismatch;
    }
  } catch (const InputError&) {
    return outcome;  // what the walk meets on a rank: a division by zero, a bucket that n does not divide
  }
  outcome.applicable = true;
  try {
    ask_parametric(schedule, outcome);
  } catch (const InputError&) {
    outcome.parametric_limit = "it meets a mistake in the schedule";
  }
  if (outcome.verdict != Verdict::mismatch) return outcome;
  result.verdict = outcome.verdict;
  result.step = symbolic_of(result)->step;
  outcome.replicas_differ = compare_replicas(result) == Replicas::differ;
  outcome.beyond_tolerance = !within_tolerance(result, Rational(8, 100));
  return outcome;
}

std::map<std::string, int> axes_in_play(const Scenario& scenario) {
  const Layout& sizes = scenario.layout;
  const Json* layout = scenario.document.find("layout");
  const bool parts =
      layout != nullptr && (layout->find("dp_shard") != nullptr || layout->find("dp_replicate") != nullptr);
  std::map<std::string, int> axes = {{"tp", sizes.tp}, {"cp", sizes.cp}, {"sp", sizes.sp},
                                     {"pp", sizes.pp}, {"ep", sizes.ep}, {"etp", sizes.etp}};
  if (parts) {
    axes.insert({{"dp_shard", sizes.dp_shard}, {"dp_replicate", sizes.dp_replicate}});
  } else {
    axes.emplace("dp", sizes.dp);
  }
  std::erase_if(axes, [](const auto& axis) { return axis.second == 1; });
  return axes;
}

SmallScenario small_scenario(const std::shared_ptr<const Scenario>& scenario) {
  constexpr int few = 2;
  // Edits of a larger one are hundreds, each of which is replayed, and proofs decide its sizes all the same.
  constexpr int most_own_ranks = 16, most_own_micro_batches = 4;
  SmallScenario small;
  const std::map<std::string, int> own = axes_in_play(*scenario);
  const int own_count = most_micro_batches(*scenario);
  const auto take = [&](const std::map<std::string, int>& axes, int micro_batches) {
    const std::shared_ptr<const Scenario> read = read_at(*scenario, {{axes.begin(), axes.end()}, micro_batches});
    if (!matches(read)) return false;
    small.scenario = read;
    small.axes = axes;
    small.micro_batches = micro_batches;
    return true;
  };
  std::map<std::string, int> all = own;
  const bool starts_with_own =
      scenario->schedule->mesh.world() <= most_own_ranks && own_count <= most_own_micro_batches;
  for (auto& [axis, size] : all) size = few;
  const int count = own_count > few ? few : 0;
  if (starts_with_own || (all == own && count == 0)) {
    small.scenario = scenario;
    small.axes = own;
  } else if (!take(all, count)) {
    small.scenario = scenario;
    small.axes = own;
    if (count > 0) take(own, count);
    for (const auto& [axis, size] : own) {
      for (int fewer = few; fewer < size && fewer <= few + 1; ++fewer) {
        std::map<std::string, int> next = small.axes;
        next[axis] = fewer;
        if (take(next, small.micro_batches)) break;
      }
    }
  }
  small.as_in_file = small.scenario == scenario;
  small.sizes = describe(small.axes, *small.scenario);
  return small;
}

std::vector<NeighbourLayout> layouts_around(const Scenario& scenario, const SmallScenario& small) {
  // With experts dp is a multiple of ep.
  const int most = small.axes.contains("ep") ? 4 : 3;
  std::vector<NeighbourLayout> layouts;
  const int count = most_micro_batches(*small.scenario);
  const auto add = [&](const std::string& axis, const std::map<std::string, int>& axes, int micro_batches) {
    const std::shared_ptr<const Scenario> read = read_at(scenario, {{axes.begin(), axes.end()}, micro_batches});
    if (!matches(read)) return;
    auto oracle = std::make_unique<MutationOracle>(*read->schedule, one_of_each_class(*read->schedule));
    if (oracle->judge().verdict == Verdict::match)
      layouts.push_back({std::move(oracle), read, describe(axes, *read), axis});
  };
  const bool parts = small.axes.contains("dp_shard") || small.axes.contains("dp_replicate");
  std::vector<std::string> names = {"tp", "cp", "sp", "pp"};
  if (parts) names.insert(names.end(), {"dp_shard", "dp_replicate"});
  if (!parts) names.emplace_back("dp");
  for (const char* expert : {"ep", "etp"}) {
    if (small.axes.contains(expert)) names.emplace_back(expert);
  }
  for (const std::string& name : names) {
    const auto own = small.axes.find(name);
    for (int size = 1; size <= most; ++size) {
      if (size == (own == small.axes.end() ? 1 : own->second)) continue;
      std::map<std::string, int> axes = small.axes;
      axes[name] = size;
      add(name, axes, small.micro_batches);
    }
  }
  for (int other = 1; other <= 3; ++other) {
    if (other != count) add("", small.axes, other);
  }
  constexpr int most_own_ranks = 64;
  if (!small.as_in_file && scenario.schedule != nullptr && scenario.schedule->mesh.world() <= most_own_ranks)
    add("the file's own", axes_in_play(scenario), most_micro_batches(scenario));
  return layouts;
}

}  // namespace lockstep::diagnosis
