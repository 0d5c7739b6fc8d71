// SPDX-License-Identifier: Apache-2.0
//
// Proves a scenario for all sizes: finds out which sizes it allows and into which cases they fall, takes the parameters
// of each case through the schedule once, and puts together what was found.
#include "lockstep/prove.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/expression/parsed_once.h"
#include "src/scenario/named_file.h"
#include "src/symbolic/parametric/counterexample.h"
#include "src/symbolic/parametric/evaluation.h"
#include "src/symbolic/parametric/find_cases.h"
#include "src/symbolic/parametric/proof_steps.h"
#include "src/symbolic/parametric/statement_conditions.h"

namespace lockstep {

using parametric::Case;
using parametric::Class;
using parametric::ClassResult;
using parametric::Evaluation;
using parametric::find_cases;
using parametric::Layouts;
using parametric::NeedsUnrolling;
using parametric::OutOfReach;
using parametric::proof_steps;
using parametric::Reason;
using parametric::reasons_of;
using parametric::Representative;
using parametric::smallest_wrong;
using parametric::statement_of;
using parametric::StepSelections;
using parametric::Verdicts;
using parametric::World;

struct Prover::State {
  State(const Scenario& scenario, Options the_options) : options(std::move(the_options)), layouts(scenario, options) {
    const scenario::NamedFilesOnce files_once;  // a file may change before at() reads it
    find();
    proof.axes = layouts.axes();
    proof.micro_batches = layouts.micro_batches();
    proof.refused = layouts.refused();
    proof.refused_beside = layouts.refused_beside();
    proof.refused_together = layouts.refused_together();
    proof.limits = layouts.limits();
    proof.rules = layouts.unlisted_rules(proof.limits);
    proof.kept = layouts.kept();
    proof.cases = static_cast<int>(cases.size());
    for (const Case& one : cases) {
      for (const Representative& representative : one.representatives)
        proof.classes += static_cast<int>(representative.results.size());
    }
    try {
      // As much for the sentence as for the search.
      const Budget budget(std::int64_t{2} * options.budget * Budget::counterexample,
                          options.budget * Budget::memory_of_a_proof);
      conclude();
    } catch (const OverBudget& over) {
      proof.verdict = Proof::Verdict::undecided;
      proof.counterexample.reset();
      proof.limits.push_back({"", "", std::string("the search for the smallest wrong layout: ") + over.what()});
      proof.statement = "it may be wrong at some sizes, and none was found";
    }
    if (options.own_sizes && !is_decided_at(replayed_sizes(scenario))) try_own(scenario);
  }
  void find();
  void conclude();
  const Sizes& replayed_sizes(const Scenario& file) const;
  bool is_decided_at(const Sizes& sizes) const;
  void try_own(const Scenario& file);
  void add_conditions(const std::vector<Reason>& reasons, const std::string& why);

  expression::ParsedOnce parsed_once;
  Options options;
  Layouts layouts;
  std::vector<Case> cases;
  Proof proof;
};

void Prover::State::find() {
  const Budget budget(options.budget * Budget::proof, options.budget * Budget::memory_of_a_proof);
  for (;;) {
    try {
      if (const std::optional<std::string> why = layouts.enter()) {
        cases.emplace_back().limit = Proof::Limit{"", "", *why};
        return;
      }
    } catch (const OverBudget& over) {
      layouts.leave_unnamed();
      cases.emplace_back().limit = Proof::Limit{"", "", over.what()};
      return;
    }
    // Where micro-batches must be told apart, their number is the one that is given.
    try {
      cases = find_cases(layouts, options.steps);
      return;
    } catch (const NeedsUnrolling& need) {
      layouts.give_micro_batches(need.step, need.why);
    }
  }
}

/// Where it would be wrong, of which no size was found.
void Prover::State::add_conditions(const std::vector<Reason>& reasons, const std::string& why) {
  constexpr std::size_t most = 100;
  std::set<std::string> known;
  std::size_t left_out = 0;
  for (const Reason& reason : reasons) {
    const std::string sizes = parametric::describe_condition(reason);
    if (!known.insert(sizes).second) continue;
    if (known.size() > most) {
      ++left_out;
      continue;
    }
    proof.limits.push_back({sizes, "", why});
  }
  if (left_out > 0) proof.limits.push_back({"", "", fmt::format("there are {} more such conditions", left_out)});
}

void Prover::State::conclude() {
  std::vector<Reason> reasons;
  std::set<std::string> names;
  const std::size_t before = proof.limits.size();
  for (const Case& one : cases) {
    if (one.limit) proof.limits.push_back(*one.limit);
    for (const Reason& reason : reasons_of(one)) {
      reasons.push_back(reason);
      const Logical& logical = reason.representative->scenario->schedule->model
                                   .logicals()[lockstep::at(reason.result->members->logicals.front())];
      names.insert(logical.name);
    }
  }
  proof.wrong_parameters.assign(names.begin(), names.end());
  const bool is_open = !proof.axes.empty() || proof.micro_batches;
  if (options.steps) proof.steps = proof_steps(cases);
  std::vector<Sizes> replayed;  // and right
  std::string not_shown = "none of the sizes that were tried shows";
  try {
    const Budget budget(options.budget * Budget::counterexample, options.budget * Budget::memory_of_a_proof);
    if (!reasons.empty()) proof.counterexample = smallest_wrong(layouts, reasons, replayed);
  } catch (const OverBudget& over) {
    not_shown = fmt::format("no replay shows: {}", over.what());
  }
  if (!reasons.empty() && proof.counterexample) {
    proof.verdict = Proof::Verdict::wrong;
    proof.statement = statement_of(cases, reasons, proof.axes, proof.micro_batches);
    if (!proof.limits.empty()) proof.statement += ", of the sizes that could be followed";
  } else if (!reasons.empty()) {
    proof.verdict = Proof::Verdict::undecided;
    add_conditions(reasons, "there may be a mistake, which " + not_shown);
    const auto by_tokens = [&](const Reason& reason) {
      const parametric::TokenParts parts =
          parametric::by_tokens(reason.representative->world->polynomials(), reason.cell->value);
      // At sizes that were not replayed it may be wrong with any tokens.
      return std::any_of(parts.begin(), parts.end(), [](const auto& part) { return !part.first.empty(); }) &&
             std::any_of(replayed.begin(), replayed.end(),
                         [&](const Sizes& sizes) { return parametric::applies(reason, sizes); });
    };
    const auto all = [&](const auto& is_so) { return std::all_of(reasons.begin(), reasons.end(), is_so); };
    proof.statement =
        all([](const Reason& reason) { return reason.by_cut; })
            ? "right at every small size that was tried; it would be wrong where its cuts give an element other owners"
        : all(by_tokens)
            ? "right at every small size that was tried; it would be wrong for other numbers of tokens than those that "
              "were tried"
            : "right at every small size that was tried; at others something may be wrong that was not seen at these";
  } else if (!proof.limits.empty()) {
    proof.verdict = Proof::Verdict::undecided;
    proof.statement =
        proof.limits.size() - before == cases.size() ? "no proof for every size" : "right where it could be followed";
  } else {
    proof.verdict = Proof::Verdict::right;
    proof.statement = is_open ? "right for every size" : "right at the one size that it has";
  }
  if (proof.verdict != Proof::Verdict::undecided) proof.statement += parametric::sizes_kept(proof.kept);
}

/// The file's own; where some are "any", the small ones that stand for all.
const Sizes& Prover::State::replayed_sizes(const Scenario& file) const {
  return file.schedule ? layouts.own() : layouts.base();
}

/// Whether a case says of these sizes what is so there.
bool Prover::State::is_decided_at(const Sizes& sizes) const {
  if (proof.verdict == Proof::Verdict::undecided) return false;
  return std::any_of(cases.begin(), cases.end(), [&](const Case& one) { return !one.limit && one.holds(sizes); });
}

/// The file is one of the layouts that the statement is about, and what cannot be followed for all of them can be
/// replayed at one. Where it has no sizes of its own, a small one is looked at in its place.
void Prover::State::try_own(const Scenario& file) {
  const bool has_sizes = file.schedule != nullptr;
  const Sizes& sizes = replayed_sizes(file);
  try {
    const Budget budget(options.budget * Budget::replay, options.budget * Budget::memory_of_a_proof);
    const std::shared_ptr<const Scenario> small = has_sizes ? nullptr : layouts.read_whole(sizes);
    if (!has_sizes && !small) return;
    auto there = parametric::replay(has_sizes ? file : *small, sizes);
    if (!there) return;
    proof.counterexample = std::move(there);
  } catch (const OverBudget&) {
    return;  // what is said of other sizes stands
  }
  proof.counterexample->of_file = has_sizes;
  std::vector<std::string>& names = proof.wrong_parameters;
  const std::string& name = proof.counterexample->parameter;
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.insert(names.begin(), name);
  proof.verdict = Proof::Verdict::wrong;
  std::string where = "the sizes of the file";
  if (!has_sizes) {
    parametric::CaseSizes one;
    for (const Axis axis : proof.axes) one.exact[axis] = sizes.axes.at(axis);
    if (proof.micro_batches) one.exact_micro_batches = sizes.micro_batches;
    where = parametric::describe(one);
  }
  proof.statement = fmt::format("wrong at {}; {}", where, proof.statement);
}

Prover::Prover(const Scenario& scenario) : Prover(scenario, Options{}) {}
Prover::Prover(const Scenario& scenario, Options options)
    : state_(std::make_unique<State>(scenario, std::move(options))) {}
Prover::~Prover() = default;

const Proof& Prover::proof() const { return state_->proof; }

std::shared_ptr<const Scenario> Prover::scenario_at(const Sizes& sizes) const {
  return state_->layouts.read_whole(state_->layouts.with(sizes));
}

std::optional<ParametricResult> Prover::at(const Sizes& sizes) const {
  const Sizes all = state_->layouts.with(sizes);
  const std::shared_ptr<const Scenario> scenario = state_->layouts.read(all);
  if (!scenario) return std::nullopt;
  ParametricResult result;
  result.why = "the proof does not speak of these sizes";
  const auto found =
      std::find_if(state_->cases.begin(), state_->cases.end(), [&](const Case& one) { return one.holds(all); });
  if (found == state_->cases.end()) return result;
  if (found->limit) {
    result.undecided_step = found->limit->step;
    result.why = found->limit->why;
    return result;
  }
  try {
    const Schedule& schedule = *scenario->schedule;
    const World target(schedule, {});
    const StepSelections selections(target);
    Verdicts verdicts(schedule.batch.steps());
    for (const Class& members : selections.classes()) {
      const Representative* of = nullptr;
      const ClassResult* same = nullptr;
      for (const Representative& representative : found->representatives) {
        for (const ClassResult& one : representative.results) {
          if (one.members->key == members.key) of = &representative, same = &one;
        }
      }
      if (same == nullptr) {
        result.why = "at these sizes parameters lie where they lie at none of those that the proof looked at";
        return result;
      }
      verdicts.add(Evaluation(*of->world, target, *same, members).first(), members.logicals.front());
    }
    result.classes = static_cast<int>(selections.classes().size());
    result.why.clear();
    verdicts.write(result);
  } catch (const OutOfReach& limit) {
    result.undecided_step = limit.step;
    result.why = limit.what();
  }
  return result;
}

}  // namespace lockstep
