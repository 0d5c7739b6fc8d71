// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mutation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "lockstep/check.h"
#include "lockstep/prove.h"
#include "src/base/budget.h"
#include "src/diagnosis/candidates.h"
#include "src/diagnosis/shrink.h"
#include "src/diagnosis/stopwatch.h"
#include "src/expression/parsed_once.h"

namespace lockstep::diagnosis {

namespace {

/// Of each edit that is not noticed at once there are proofs: all together may take some twenty seconds.
constexpr std::int64_t most_units = 800'000'000;

/// What the engines say of a schedule.
struct MutantOutcome {
  Verdict verdict = Verdict::match;
  std::vector<std::string> engines;  ///< that find it wrong
};

/// Throws InputError for what ranks meet in a step that cannot be evaluated, and InternalError where both engines have
/// an answer and it is not the same.
MutantOutcome outcome_of(const Schedule& schedule, const MutationEngines& engines) {
  using Found = ParametricResult::Verdict;
  MutantOutcome outcome = {engines.symbolic(schedule), {}};
  if (outcome.verdict != Verdict::match) outcome.engines = {"symbolic"};
  Found found = Found::undecided;
  try {
    found = engines.parametric(schedule).verdict;
  } catch (const InputError&) {
    // It meets a mistake in the schedule.
  }
  if (found == Found::undecided) return outcome;
  const Verdict said = found == Found::match      ? Verdict::match
                       : found == Found::mismatch ? Verdict::mismatch
                                                  : Verdict::race;
  if (said != outcome.verdict)
    throw InternalError(
        fmt::format("the parametric engine says {}, the symbolic engine {}", name_of(said), name_of(outcome.verdict)));
  if (said != Verdict::match) outcome.engines.emplace_back("parametric");
  return outcome;
}

/// A layout at which edits are tried.
struct MutationLayout {
  std::shared_ptr<const Scenario> scenario;
  FileSizes sizes;  ///< other than the file's own
  std::string of;   ///< what has another size than at the small layout: "dp", "micro_batches"; "" for all at once
};

/// Where edits are tried first: at the file's own sizes where these are small, else at a small layout where it is
/// right.
MutationLayout small_layout(const std::shared_ptr<const Scenario>& scenario) {
  // Edits of a larger one are hundreds, each of which is replayed, and proofs decide its sizes all the same.
  constexpr int most_own_ranks = 16, most_own_micro_batches = 4;
  MutationLayout small = {scenario, {}, ""};
  if (scenario->schedule->mesh.world() > most_own_ranks || most_micro_batches(*scenario) > most_own_micro_batches) {
    CheckResult right;
    right.scenario = scenario;
    right.verdict = Verdict::match;
    const SmallLayout found = smallest_layout(right);
    small.sizes = found.sizes;
    if (found.check != nullptr) small.scenario = found.check->scenario;
  }
  return small;
}

/// Around the small layout, where the scenario is right: one axis at a time at 1 to 4, the micro-batches at 1 to 3, and
/// the file's own sizes, where these have at most 64 ranks.
std::vector<MutationLayout> layouts_around(const Scenario& scenario, const MutationLayout& small) {
  constexpr int most_own_ranks = 64;
  const bool in_parts = small.scenario->layout.dp_replicate > 1;
  std::vector<std::string> axes = {"tp", "cp", "sp", "pp", in_parts ? "dp_replicate" : "dp"};
  if (in_parts) axes.emplace_back("dp_shard");
  std::vector<OtherSize> sizes = sizes_around(scenario, small.sizes, axes);
  if (!small.sizes.empty() && scenario.schedule != nullptr && scenario.schedule->mesh.world() <= most_own_ranks)
    sizes.push_back({"", {}});
  std::vector<MutationLayout> layouts;
  for (OtherSize& other : sizes) {
    const std::shared_ptr<const CheckResult> there = check_at(scenario, other.sizes);
    if (there == nullptr || there->verdict != Verdict::match) continue;
    layouts.push_back({there->scenario, std::move(other.sizes), std::move(other.of)});
  }
  return layouts;
}

/// What a proof could not follow, or what it says where it could.
std::string limit_of(const Proof& proof) {
  if (proof.limits.empty()) return proof.statement;
  const Proof::Limit& limit = proof.limits.front();
  const std::string where = limit.sizes.empty() ? "" : fmt::format("where {}, ", limit.sizes);
  return where + (limit.step.empty() ? limit.why : fmt::format("{}: {}", limit.step, limit.why));
}

/// What is known of the schedule without an edit.
struct Base {
  std::set<Axis> fixed;  ///< axes that stay as the file has them
  bool fixed_micro_batches = false;
  Proof proof;  ///< of what is left

  bool any_open() const { return !proof.axes.empty() || proof.micro_batches; }
  bool right() const { return any_open() && proof.verdict == Proof::Verdict::right; }
  /// Why it is not proved right.
  std::string limit() const { return any_open() ? limit_of(proof) : "no size of it can be left open"; }

  Proof proof_of(const Scenario& scenario) const {
    Prover::Options options;
    options.fixed = fixed;
    options.fixed_micro_batches = fixed_micro_batches;
    return Prover(scenario, options).proof();
  }

  std::string statement() const {
    if (!right()) return limit();
    std::vector<std::string> every, as_in_file;
    for (const Axis axis : proof.axes) every.emplace_back(name_of(axis));
    if (proof.micro_batches) every.emplace_back("number of micro-batches");
    for (const Axis axis : fixed) as_in_file.emplace_back(name_of(axis));
    if (fixed_micro_batches) as_in_file.emplace_back("number of micro-batches");
    return fmt::format(
        "right for every {}{}", fmt::join(every, ", "),
        as_in_file.empty() ? "" : fmt::format(", with the {} of the file", fmt::join(as_in_file, " and the ")));
  }
};

/// With these axes, and with nothing for the number of micro-batches, as in the file.
Base base_with(const Scenario& scenario, const std::vector<std::optional<Axis>>& fixed) {
  Base base;
  for (const std::optional<Axis>& one : fixed) {
    if (one) base.fixed.insert(*one);
    base.fixed_micro_batches = base.fixed_micro_batches || !one;
  }
  base.proof = base.proof_of(scenario);
  return base;
}

/// Where it is not right for every size, as few axes as possible stay as the file has them, so that it is right for
/// every size of the others.
Base find_base(const Scenario& scenario) {
  Base open = base_with(scenario, {});
  if (open.right()) return open;
  std::vector<std::optional<Axis>> sizes(open.proof.axes.begin(), open.proof.axes.end());
  if (open.proof.micro_batches) sizes.push_back(std::nullopt);
  for (int count = 1; count <= 3; ++count) {
    for (unsigned mask = 1; mask < 1U << sizes.size(); ++mask) {
      if (std::popcount(mask) != count) continue;
      std::vector<std::optional<Axis>> fixed;
      for (std::size_t at = 0; at < sizes.size(); ++at) {
        if ((mask >> at & 1U) != 0) fixed.push_back(sizes[at]);
      }
      Base base = base_with(scenario, fixed);
      if (base.right()) return base;
    }
  }
  return open;
}

std::vector<Candidate> all_edits(const Schedule& schedule) {
  CandidateValues values = candidate_values(schedule, {});
  values.sizes = values.axis_sizes;
  values.replaces_numbers = false;  // which other factors come to
  // All parameters: a step says that by naming none. And a step of frozen ones alone is as good as dropped.
  const std::vector<Parameter>& parameters = schedule.model.parameters();
  std::erase_if(values.selections, [&](const Selectors& selection) {
    const auto is_chosen = [&](const Parameter& one) { return !one.frozen && selection.chooses(one, one.numel()); };
    return selection.items().front() == "*" || std::none_of(parameters.begin(), parameters.end(), is_chosen);
  });
  std::vector<Candidate> edits = edits_of_steps(schedule.steps, values);
  for (Candidate& edit : placement_edits(schedule)) edits.push_back(std::move(edit));
  return edits;
}

class Run {
 public:
  Run(const std::shared_ptr<const Scenario>& scenario, const MutationEngines& engines)
      : scenario_(*scenario), engines_(engines), small_(small_layout(scenario)) {
    mutation_.scenario = scenario;
    mutation_.small = small_.scenario;
    mutation_.as_in_file = small_.scenario == scenario;
  }

  Mutation all() {
    const Stopwatch stopwatch;
    const expression::ParsedOnce parsed_once;
    const Budget budget(most_units, Budget::memory_of_a_proof);
    base_ = find_base(scenario_);
    mutation_.base = base_.statement();
    const std::vector<Candidate> edits = all_edits(*small_.scenario->schedule);
    seen_ = {hash_of(*small_.scenario)};
    std::size_t tried = 0;
    try {
      for (; tried < edits.size(); ++tried) try_edit(edits[tried]);
    } catch (const OverBudget& over) {
      mutation_.cut_off = over.what();
      mutation_.untried = static_cast<int>(edits.size() - tried);
    }
    mutation_.seconds = stopwatch.seconds();
    return std::move(mutation_);
  }

 private:
  static std::size_t hash_of(const Scenario& scenario) {
    Json resolved = scenario.resolved;
    resolved.remove("expect");
    return std::hash<std::string>()(write_json(resolved));
  }

  Scenario edited(const Scenario& scenario, const Edit& edit) const {
    return read_scenario(scenario.document, scenario_.file, {.edits = {edit}});
  }

  void try_edit(const Candidate& candidate) {
    Mutant mutant = {.kind = name_of(candidate.kind), .step = candidate.step, .edit = to_json(candidate.edit)};
    try {
      const Scenario small = edited(*small_.scenario, candidate.edit);
      if (!seen_.insert(hash_of(small)).second) return void(++mutation_.same);
      const MutantOutcome outcome = outcome_of(*small.schedule, engines_);
      mutant.document = small.document;
      if (outcome.verdict == Verdict::match)
        prove(mutant, candidate.edit, edited(scenario_, candidate.edit));
      else
        kill(mutant, outcome);
    } catch (const InputError&) {
      return void(++mutation_.invalid);
    } catch (const InternalError& error) {
      throw InternalError(
          fmt::format("{} with the edit {}: {}", scenario_.file, write_json(mutant.edit), error.what()));
    }
    mutation_.unproved += mutant.fate == Mutant::Fate::unproved ? 1 : 0;
    mutation_.mutants.push_back(std::move(mutant));
  }

  static void kill(Mutant& mutant, const MutantOutcome& outcome) {
    mutant.fate = Mutant::Fate::killed;
    mutant.verdict = outcome.verdict;
    mutant.engines = outcome.engines;
    mutant.why.clear();
  }

  /// It is right at the small layout. Is it at every other?
  void prove(Mutant& mutant, const Edit& edit, const Scenario& edited) {
    const Proof proof = base_.proof_of(edited);
    if (proof.verdict == Proof::Verdict::wrong && is_kill(*proof.counterexample, mutant)) return;
    const std::optional<Axis> left_out = axis_left_out(proof);
    mutant.why = !base_.right()                           ? "the schedule itself: " + base_.limit()
                 : proof.verdict != Proof::Verdict::right ? limit_of(proof)
                 : left_out ? fmt::format("its proof is for the {} of the file alone", name_of(*left_out))
                 : proof.micro_batches != base_.proof.micro_batches
                     ? "it tells micro-batches apart, so that their number cannot be left open"
                     : "";
    mutant.fate = mutant.why.empty() ? Mutant::Fate::equivalent : Mutant::Fate::unproved;
    try_around(mutant, edit);
  }

  /// An axis of which the schedule without an edit is proved right for every size, and the edited one is not. One that
  /// refuses the edit at all sizes but one has no others at which the mutant exists.
  std::optional<Axis> axis_left_out(const Proof& proof) const {
    const auto open = [&](Axis axis) { return std::ranges::count(proof.axes, axis) > 0; };
    for (const Axis axis : base_.proof.axes) {
      const bool refused = std::any_of(proof.refused.begin(), proof.refused.end(),
                                       [&](const Proof::Refused& one) { return one.axis == axis; });
      // An edit may bring in the expert mesh, in which dp is ep times edp.
      if (!open(axis) && !refused && !(axis == Axis::dp && open(Axis::edp))) return axis;
    }
    return std::nullopt;
  }

  /// Whether a counterexample of an edited schedule is one: the schedule without the edit is right there.
  bool is_kill(const Proof::Counterexample& example, Mutant& mutant) const {
    if (!base_.right()) {
      const Scenario right = read_scenario(scenario_.document, scenario_.file, {example.sizes});
      if (engines_.symbolic(*right.schedule) != Verdict::match) return false;
    }
    const Verdict verdict = engines_.symbolic(*read_scenario(example.document, scenario_.file).schedule);
    if (verdict == Verdict::match)
      throw InternalError(fmt::format("the parametric engine proves it wrong at {}, and the symbolic engine says match",
                                      describe(example.sizes)));
    kill(mutant, {verdict, {"parametric"}});
    mutant.sizes = describe(example.sizes);
    mutant.document = example.document;
    return true;
  }

  /// The layouts around the small one. Where it is proved right nothing can be wrong.
  void try_around(Mutant& mutant, const Edit& edit) {
    if (!around_) around_ = layouts_around(scenario_, small_);
    for (const MutationLayout& layout : *around_) {
      MutantOutcome outcome;
      try {
        const Scenario there = edited(*layout.scenario, edit);
        if (engines_.symbolic(*there.schedule) == Verdict::match) continue;
        outcome = outcome_of(*there.schedule, engines_);
        mutant.document = there.document;
      } catch (const InputError&) {
        continue;  // what it changes is not there at these sizes
      }
      const std::string sizes = layout.sizes.empty() ? "the file's own sizes" : layout.sizes.to_string();
      if (mutant.fate == Mutant::Fate::equivalent && is_proved_at(layout))
        throw InternalError(fmt::format("the parametric engine proves it right for every size, and at {} it is {}",
                                        sizes, name_of(outcome.verdict)));
      kill(mutant, outcome);
      mutant.sizes = sizes;
      return;
    }
  }

  /// Whether the proof of the schedule without an edit leaves open what is other there than at the small layout.
  bool is_proved_at(const MutationLayout& layout) const {
    if (layout.of == "micro_batches") return base_.proof.micro_batches;
    if (small_.scenario->layout.etp > 1) return false;  // proofs keep it equal to tp
    return std::ranges::count(base_.proof.axes, axis_named(layout.of)) > 0;
  }

  const Scenario& scenario_;
  const MutationEngines& engines_;
  const MutationLayout small_;
  Base base_;
  std::optional<std::vector<MutationLayout>> around_;
  std::unordered_set<std::size_t> seen_;  ///< small scenarios, as plain steps
  Mutation mutation_;
};

}  // namespace

Mutation mutate(const std::shared_ptr<const Scenario>& scenario, const MutationEngines& engines) {
  return Run(scenario, engines).all();
}

}  // namespace lockstep::diagnosis
