// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mutation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "lockstep/prove.h"
#include "src/base/budget.h"
#include "src/diagnosis/mutation_flags.h"
#include "src/diagnosis/mutation_oracle.h"
#include "src/diagnosis/mutation_sizes.h"
#include "src/diagnosis/shrink.h"
#include "src/diagnosis/step_list.h"

namespace lockstep::diagnosis {

namespace {

/// Of each edit that is not noticed at once there are proofs: all together may take some ten seconds.
constexpr std::int64_t most_units = 400'000'000;
/// The schedules of frameworks have some hundreds.
constexpr std::size_t most_edits = 5000;

class Run {
 public:
  Run(const std::shared_ptr<const Scenario>& scenario, const MutationOptions& options)
      : scenario_(*scenario),
        options_(options),
        small_(small_scenario(scenario)),
        oracle_(right_oracle(*small_.scenario)) {
    mutation_.scenario = scenario;
    mutation_.sizes = small_.sizes;
    mutation_.as_in_file = small_.as_in_file;
  }

  Mutation all() {
    const auto begin = std::chrono::steady_clock::now();
    const Budget budget(most_units, Budget::memory_of_a_proof);
    find_base();
    std::vector<Candidate> edits = single_edits(oracle_.steps().steps(), values());
    std::erase_if(edits, [](const Candidate& edit) { return edit.kind == Candidate::Kind::insert; });
    const std::vector<Edit> flags = parameter_edits(oracle_.steps().steps(), small_.scenario->schedule->mesh,
                                                    oracle_.steps().schedule_of().model.parameters());
    seen_ = {scenario::content_hash(oracle_.steps().steps())};
    seen_documents_ = {write_json(small_.scenario->resolved)};
    std::int64_t done = 0;
    const auto count = [&] {
      if (options_.progress) options_.progress(done++, static_cast<std::int64_t>(edits.size() + flags.size()));
    };
    std::size_t tried = 0;
    try {
      for (; tried < edits.size(); ++tried) {
        if (tried == most_edits) throw OverBudget(fmt::format("it has more than {} edits", most_edits));
        count();
        judge(edits[tried]);
      }
      for (; tried < edits.size() + flags.size(); ++tried) {
        count();
        judge_parameter(flags[tried - edits.size()]);
      }
    } catch (const OverBudget& over) {
      mutation_.cut_off = over.what();
      mutation_.untried = static_cast<int>(edits.size() + flags.size() - tried);
    }
    if (options_.progress) options_.progress(done, done);
    mutation_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(mutation_);
  }

 private:
  /// One parameter of each class, unless something is wrong for lack of the others.
  static MutationOracle right_oracle(const Scenario& scenario) {
    MutationOracle classes(*scenario.schedule, one_of_each_class(*scenario.schedule));
    return classes.judge().verdict == Verdict::match ? std::move(classes) : MutationOracle(*scenario.schedule);
  }

  /// Where all parameters lie in one stretch that is cut, what is wrong with one of each class may by accident be right
  /// with all of them.
  bool is_right_in_full(const std::vector<Step>& steps) {
    const std::size_t all = small_.scenario->schedule->model.parameters().size();
    if (oracle_.steps().schedule_of().model.parameters().size() == all) return false;
    if (!full_) full_ = std::make_unique<MutationOracle>(*small_.scenario->schedule);
    return full_->is_right(steps);
  }

  Prover prover(const Scenario& scenario) {
    Prover::Options options;
    if (edited_ == nullptr) options.read = [this](const Json& document) { return sizes_.read(document); };
    options.fixed = fixed_;
    options.fixed_micro_batches = fixed_micro_batches_;
    return Prover(scenario, options);
  }

  /// What is known of the schedule without an edit. Where it is not right for every size, as few axes as possible stay
  /// as the file has them, so that it is right for every size of the others.
  void find_base() {
    sizes_.clear_edit();
    if (find_base_with({})) return;
    const Proof::Verdict verdict = base_;
    const std::string statement = mutation_.base;
    std::vector<std::optional<Axis>> sizes(base_axes_.begin(), base_axes_.end());
    if (base_micro_batches_) sizes.push_back(std::nullopt);
    constexpr int most_fixed = 3;
    for (int count = 1; count <= most_fixed; ++count) {
      for (unsigned mask = 1; mask < 1U << sizes.size(); ++mask) {
        if (std::popcount(mask) != count) continue;
        std::vector<std::optional<Axis>> fixed;
        for (std::size_t at = 0; at < sizes.size(); ++at) {
          if ((mask >> at & 1U) != 0) fixed.push_back(sizes[at]);
        }
        if (find_base_with(fixed)) return;
      }
    }
    find_base_with({});
    base_ = verdict;
    mutation_.base = statement;
  }

  /// With these axes, and with nothing for the number of micro-batches, as in the file. False where it is not proved
  /// right for every size of what is left.
  bool find_base_with(const std::vector<std::optional<Axis>>& fixed) {
    fixed_.clear();
    fixed_micro_batches_ = false;
    std::vector<std::string> as_in_file, every;
    for (const std::optional<Axis>& one : fixed) {
      if (one) fixed_.insert(*one);
      fixed_micro_batches_ = fixed_micro_batches_ || !one;
      as_in_file.emplace_back(one ? name_of(*one) : "number of micro-batches");
    }
    const Prover base = prover(scenario_);
    const Proof& proof = base.proof();
    base_ = proof.verdict;
    base_axes_ = proof.axes;
    base_micro_batches_ = proof.micro_batches;
    for (const Axis axis : proof.axes) every.emplace_back(name_of(axis));
    if (proof.micro_batches) every.emplace_back("number of micro-batches");
    if (every.empty()) base_ = Proof::Verdict::undecided;
    base_limit_ = every.empty() ? "no size of it can be left open" : limit_of(proof);
    mutation_.base = base_ != Proof::Verdict::right
                         ? base_limit_
                         : fmt::format("right for every {}{}", fmt::join(every, ", "),
                                       as_in_file.empty() ? ""
                                                          : fmt::format(", with the {} of the file",
                                                                        fmt::join(as_in_file, " and the ")));
    return base_ == Proof::Verdict::right;
  }

  /// What a proof could not follow, or what it says where it could.
  static std::string limit_of(const Proof& proof) {
    if (proof.limits.empty()) return proof.statement;
    const Proof::Limit& limit = proof.limits.front();
    const std::string where = limit.sizes.empty() ? "" : fmt::format("where {}, ", limit.sizes);
    return where + (limit.step.empty() ? limit.why : fmt::format("{}: {}", limit.step, limit.why));
  }

  CandidateValues values() const {
    CandidateValues values = candidate_values(*small_.scenario->schedule, {});
    values.sizes = values.axis_sizes;
    // All parameters: a step says that by naming none.
    std::erase_if(values.selections, [](const Selectors& selection) { return selection.items().front() == "*"; });
    return values;
  }

  void judge(Candidate& edit) {
    const std::optional<std::vector<Step>> steps = oracle_.steps().edited({edit.edit});
    if (!steps || chooses_nothing(edit.edit)) {
      ++mutation_.invalid;
      return;
    }
    if (!seen_.insert(scenario::content_hash(*steps)).second) {
      ++mutation_.same;
      return;
    }
    Mutant mutant;
    mutant.kind = name_of(edit.kind);
    mutant.step = std::move(edit.step);
    mutant.edit = to_json(edit.edit);
    mutant.document = scenario::with_edits(small_.scenario->document, {edit.edit});
    judge(std::move(mutant), edit.edit, oracle_, *steps);
  }

  /// The model is read anew for each.
  void judge_parameter(const Edit& edit) {
    Mutant mutant;
    mutant.kind = flag_edits;
    mutant.edit = to_json(edit);
    mutant.document = scenario::with_edits(small_.scenario->document, {edit});
    std::unique_ptr<MutationOracle> oracle;
    try {
      const Scenario small = read_scenario(mutant.document, scenario_.file);
      if (!seen_documents_.insert(write_json(small.resolved)).second) {
        ++mutation_.same;
        return;
      }
      oracle = std::make_unique<MutationOracle>(*small.schedule);
      edited_ =
          std::make_unique<Scenario>(read_scenario(scenario::with_edits(scenario_.document, {edit}), scenario_.file));
    } catch (const InputError&) {
      ++mutation_.invalid;
      return;
    }
    judge(std::move(mutant), edit, *oracle, oracle->steps().steps());
    edited_ = nullptr;
  }

  void judge(Mutant mutant, const Edit& edit, MutationOracle& oracle, const std::vector<Step>& steps) {
    try {
      const MutantOutcome outcome = oracle.judge(steps);
      if (!outcome.applicable) {
        ++mutation_.invalid;
        return;
      }
      const bool reduced = edited_ == nullptr && outcome.verdict == Verdict::mismatch;
      if (outcome.verdict == Verdict::match || (reduced && is_right_in_full(steps))) {
        prove(mutant, edit);
      } else {
        mutant.symbolic = true;
        mutant.parametric = outcome.parametric_wrong;
        note(outcome, mutant);
      }
    } catch (const InternalError& error) {
      throw InternalError(
          fmt::format("{} with the edit {}: {}", scenario_.file, write_json(mutant.edit), error.what()));
    }
    mutation_.mutants.push_back(std::move(mutant));
  }

  /// Selectors that choose no parameter are refused in a file.
  bool chooses_nothing(const Edit& edit) const {
    if (!edit.changes("params")) return false;
    const schedule::SelectorList selectors(edit.values.params.items());
    const std::vector<Parameter>& parameters = small_.scenario->schedule->model.parameters();
    return std::none_of(parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
      return !parameter.frozen && selectors.chooses(parameter, parameter.numel());
    });
  }

  static void note(const MutantOutcome& outcome, Mutant& mutant) {
    mutant.fate = Mutant::Fate::killed;
    mutant.verdict = outcome.verdict;
    mutant.replicas_differ = outcome.replicas_differ;
    mutant.beyond_tolerance = outcome.beyond_tolerance;
  }

  /// What other tests see of it at the smallest sizes at which it is wrong.
  void compare(Mutant& mutant) const {
    const MutantOutcome outcome = MutationOracle(*read_scenario(mutant.document, scenario_.file).schedule).judge();
    mutant.verdict = outcome.verdict;
    mutant.replicas_differ = outcome.replicas_differ;
    mutant.beyond_tolerance = outcome.beyond_tolerance;
  }

  /// What a proof is of: the file, whose steps are edited in every layout that is read, or the file with the edit.
  const Scenario& subject() const { return edited_ != nullptr ? *edited_ : scenario_; }

  /// It is right at the small layout. Is it at every other?
  void prove(Mutant& mutant, const Edit& edit) {
    sizes_.set_edit(edit);
    {
      const Prover edited = prover(subject());
      const Proof& proof = edited.proof();
      if (proof.verdict == Proof::Verdict::wrong && is_kill(*proof.counterexample, mutant)) return;
      const bool right = base_ == Proof::Verdict::right && proof.verdict == Proof::Verdict::right;
      const std::optional<Axis> left_out = axis_left_out(proof);
      if (right && !left_out && proof.micro_batches == base_micro_batches_) {
        mutant.fate = Mutant::Fate::equivalent;
      }
      mutant.why = base_ != Proof::Verdict::right ? "the schedule itself: " + base_limit_
                   : !right                       ? limit_of(proof)
                   : left_out ? fmt::format("its proof is for the {} of the file alone", name_of(*left_out))
                              : "it tells micro-batches apart, so that their number cannot be left open";
    }
    if (mutant.fate == Mutant::Fate::equivalent) {
      mutant.why.clear();
      return try_around(mutant, edit, true);
    }
    mutant.fate = Mutant::Fate::unproved;
    if (base_micro_batches_) try_micro_batches(mutant);
    if (mutant.fate == Mutant::Fate::unproved) try_around(mutant, edit, false);
  }

  /// An axis of which the schedule without an edit is proved right for every size, and the edited one is not. One that
  /// refuses the edit at all sizes but one has no others at which the mutant exists.
  std::optional<Axis> axis_left_out(const Proof& proof) const {
    const auto open = [&](Axis axis) {
      return std::find(proof.axes.begin(), proof.axes.end(), axis) != proof.axes.end();
    };
    for (const Axis axis : base_axes_) {
      const bool refused = std::any_of(proof.refused.begin(), proof.refused.end(),
                                       [&](const Proof::Refused& one) { return one.axis == axis; });
      // An edit may bring in the expert mesh, in which dp is ep times edp.
      if (!open(axis) && !refused && !(axis == Axis::dp && open(Axis::edp))) return axis;
    }
    return std::nullopt;
  }

  /// Whether a counterexample of an edited schedule is one: the schedule without the edit is right there.
  bool is_kill(const Proof::Counterexample& example, Mutant& mutant) const {
    if (base_ != Proof::Verdict::right) {
      Json document = example.document;
      document.set("schedule", *scenario_.document.find("schedule"));
      if (MutationOracle(*read_scenario(document, scenario_.file).schedule).judge().verdict != Verdict::match)
        return false;
    }
    mutant.fate = Mutant::Fate::killed;
    mutant.parametric = true;
    mutant.sizes = describe(example.sizes);
    mutant.document = example.document;
    compare(mutant);
    return true;
  }

  /// For every size of the axes, at a few numbers of micro-batches.
  void try_micro_batches(Mutant& mutant) {
    for (const char* count : {"1", "2", "3"}) {
      Scenario other = subject();
      Json batch = other.document.find("batch") != nullptr ? *other.document.find("batch") : Json::object();
      batch.set("micro_batches", Json::number(count));
      other.document.set("batch", batch);
      const Prover edited = prover(other);
      if (edited.proof().verdict != Proof::Verdict::wrong) continue;
      if (!is_kill(*edited.proof().counterexample, mutant)) continue;
      if (mutant.sizes.find("micro-batch") == std::string::npos)
        mutant.sizes += fmt::format(", {} micro-batch{}", count, count == std::string("1") ? "" : "es");
      return;
    }
  }

  /// The sizes around the small layout, one after the other. `proved`: where the proof speaks of them, nothing can be
  /// wrong.
  void try_around(Mutant& mutant, const Edit& edit, bool proved) {
    if (!around_) around_ = layouts_around(scenario_, small_);
    for (NeighbourLayout& neighbour : *around_) {
      const MutantOutcome outcome =
          edited_ != nullptr ? outcome_of_parameter(neighbour, edit) : outcome_at(neighbour, edit);
      if (!outcome.applicable || outcome.verdict == Verdict::match) continue;
      if (proved && is_proved_at(neighbour))
        throw InternalError(fmt::format("the parametric engine proves it right for every size, and at {} it is {}",
                                        neighbour.sizes, name_of(outcome.verdict)));
      mutant.symbolic = true;
      mutant.parametric = outcome.parametric_wrong;
      mutant.sizes = neighbour.sizes;
      mutant.document = scenario::with_edits(neighbour.scenario->document, {edit});
      note(outcome, mutant);
      return;
    }
  }

  static MutantOutcome outcome_at(const NeighbourLayout& neighbour, const Edit& edit) {
    const std::optional<std::vector<Step>> steps = neighbour.oracle->steps().edited({edit});
    if (!steps || neighbour.oracle->is_right(*steps)) return {};
    const MutantOutcome outcome = neighbour.oracle->judge(*steps);
    const bool in_full =
        outcome.verdict != Verdict::mismatch || !MutationOracle(*neighbour.scenario->schedule).is_right(*steps);
    return in_full ? outcome : MutantOutcome{};
  }

  MutantOutcome outcome_of_parameter(const NeighbourLayout& neighbour, const Edit& edit) const {
    try {
      return MutationOracle(
                 *read_scenario(scenario::with_edits(neighbour.scenario->document, {edit}), scenario_.file).schedule)
          .judge();
    } catch (const InputError&) {
      return {};  // the parameter is another one there, or none
    }
  }

  /// Whether the proof of the schedule without an edit leaves open what is other there than at the small layout.
  bool is_proved_at(const NeighbourLayout& neighbour) const {
    if (neighbour.axis.empty()) return base_micro_batches_;
    if (small_.axes.contains("etp")) return false;  // proofs keep it equal to tp
    const std::optional<Axis> axis = axis_named(neighbour.axis);
    return std::find(base_axes_.begin(), base_axes_.end(), axis) != base_axes_.end();
  }

  const Scenario& scenario_;
  const MutationOptions& options_;
  SmallScenario small_;
  MutationOracle oracle_;
  std::unique_ptr<MutationOracle> full_;  ///< with every parameter
  MutationSizes sizes_{scenario_.file};
  std::set<Axis> fixed_;
  bool fixed_micro_batches_ = false;
  Proof::Verdict base_ = Proof::Verdict::undecided;  ///< with these fixed
  std::vector<Axis> base_axes_;
  bool base_micro_batches_ = false;
  std::string base_limit_;
  std::optional<std::vector<NeighbourLayout>> around_;
  std::unordered_set<std::uint64_t> seen_;          ///< steps
  std::unordered_set<std::string> seen_documents_;  ///< resolved, with another model
  std::unique_ptr<Scenario> edited_;                ///< the file with the edit, while that is one of a parameter
  Mutation mutation_;
};

}  // namespace

Mutation mutate(const std::shared_ptr<const Scenario>& scenario, const MutationOptions& options) {
  return Run(scenario, options).all();
}

}  // namespace lockstep::diagnosis
