// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/parametric.h"
#include "lockstep/scenario.h"
#include "lockstep/sizes.h"
#include "lockstep/timeline.h"

namespace lockstep {

/// What was found out about a scenario for every size at once.
struct Proof {
  /// wrong: for some sizes at least. undecided: nothing wrong was found, and some sizes are out of reach.
  enum class Verdict { right, wrong, undecided };
  Verdict verdict = Verdict::undecided;
  /// "right for every tp, dp and pp", "wrong as soon as pp ≥ 2 and dp ≥ 2": a sentence without a period.
  std::string statement;
  std::vector<Axis> axes;      ///< that are open
  bool micro_batches = false;  ///< whether their number is open as well
  /// Sizes of an axis that the scenario refuses, of 1 to `tried`, whatever the other axes have; and of each rule that
  /// refuses none of these the first one that was found.
  struct Refused {
    Axis axis;
    std::vector<int> sizes;  ///< ascending; in `refused` at least one: `from`, where none of 1 to `tried` is
    int tried = 1;
    std::string why;          ///< the first is refused, or larger ones are
    std::optional<int> from;  ///< from this one on all are
  };
  std::vector<Refused> refused;
  /// Sizes of 1 to `tried` that something else than a rule refuses beside the other sizes that were tried, such as a
  /// shape of a model file: it may allow them beside others, and refuse larger ones. No sizes: of larger ones alone.
  std::vector<Refused> refused_beside;
  /// The first two sizes that a rule of the scenario refuses together, whatever the others are, and neither alone: one
  /// for each rule that was found to refuse so.
  struct RefusedTogether {
    Sizes sizes;
    std::string why;
  };
  std::vector<RefusedTogether> refused_together;
  /// Of rules of the scenario, each that hangs on open sizes and of which the two lists have no example: of one open
  /// size none in `refused`, of two no pair. What more than two hang on is always here.
  struct Rule {
    std::string condition;  ///< of nothing but sizes: where it holds they are refused
    std::string why;        ///< as the file says it, with names whose values hang on sizes in braces
  };
  std::vector<Rule> rules;
  /// Where the engine has no answer: half a sentence each, and the step ("" where it is the whole scenario).
  struct Limit {
    std::string sizes;  ///< "pp ≥ 3": for these
    std::string step;
    std::string why;
  };
  std::vector<Limit> limits;
  /// An axis, or the number of micro-batches, of which the engine follows one size, and the statement is about that:
  /// the file says nothing of it, its layout does not name it, or experts stand beside it.
  struct Kept {
    std::optional<Axis> axis;  ///< nothing for the number of micro-batches
    int size = 1;
    std::string why;          ///< half a sentence
    bool is_unnamed = false;  ///< because the layout does not name it: Prover::Options::also_open opens it
    bool is_given = false;    ///< because the file, which says of others that they are "any", gives it: the statement
                              ///< does not repeat it
    std::string name() const { return axis ? std::string(name_of(*axis)) : "micro_batches"; }
  };
  std::vector<Kept> kept;
  std::vector<std::string> wrong_parameters;  ///< by name, one for each way of behaving
  /// The smallest layout at which it is wrong, found by enumeration and confirmed by the symbolic engine; the file's
  /// own where the cases do not decide and that one is wrong.
  struct Counterexample {
    Sizes sizes;
    Json document;  ///< a scenario
    int rank = 0;
    std::string parameter, got, expected;
    Outcome::Kind ended = Outcome::Kind::complete;  ///< complete: a value or a norm is wrong
    bool of_file = false;                           ///< its sizes are the file's; smaller ones may be wrong as well
    bool is_smallest = true;  ///< not where rules on micro-batches may allow smaller sizes that were not tried
    bool unowned = false;     ///< nobody answers for some of its elements
    std::string counted;      ///< how often the norm counts some of its elements, where that is what is wrong
  };
  std::optional<Counterexample> counterexample;
  int classes = 0;  ///< of parameters that behave alike, all cases together
  int cases = 0;    ///< ranges of sizes that were looked at one by one
  /// The proof itself, if it was asked for: JSON as docs/proof.md describes it.
  Json steps;
};

/// Proves a scenario right or wrong for all sizes of its layout: tp, cp, sp, dp and pp, and the number of micro-batches
/// where every one goes through the same. The sizes in the file do not matter. Keep it to ask for single sizes.
class Prover {
 public:
  struct Options {
    bool steps = false;  ///< Proof::steps
    /// Which axes are open where none is "any": all that the scenario speaks of, or those that its layout names, and
    /// all where it names none.
    enum class Open { all, named };
    Open open = Open::all;
    std::set<Axis> also_open;  ///< axes that are open as though the layout named them; some of the others may be "any"
    /// Reads the scenario at sizes; throws InputError where they are refused. Null: as a file of its own. What it
    /// returns must stay as it is as long as the prover lives.
    std::function<Scenario(const Sizes& sizes)> read = nullptr;
    std::set<Axis> fixed;              ///< axes that stay as the scenario has them
    bool fixed_micro_batches = false;  ///< so does the number of micro-batches
    /// Where the cases do not decide it, the file's own sizes are replayed too: it may be wrong at these.
    bool own_sizes = false;
    int budget = 1;  ///< how many times the usual work and memory it may take
  };
  explicit Prover(const Scenario& scenario);
  Prover(const Scenario& scenario, Options options);
  ~Prover();

  const Proof& proof() const;
  /// What the proof says of one layout. Reads the scenario at these sizes for what is cut where. Nothing where the
  /// scenario refuses them.
  std::optional<ParametricResult> at(const Sizes& sizes) const;
  /// The scenario at these sizes; nothing where it refuses them.
  std::shared_ptr<const Scenario> scenario_at(const Sizes& sizes) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// What was found out about two scenarios for every size at once: do they hand the same gradients to the optimizers?
struct SameProof {
  enum class Verdict { same, other, undecided };
  Verdict verdict = Verdict::undecided;
  /// "the same gradients", "other gradients as soon as dp ≥ 2": without a period.
  std::string statement;
  std::vector<Axis> axes;  ///< that are open
  bool micro_batches = false;
  std::vector<Proof::Limit> limits;
  /// Sizes of open axes that "old" or "new" refuses, of which the statement does not speak: the smallest of each.
  struct RefusedBy {
    std::string side;
    Proof::Refused refused;
  };
  std::vector<RefusedBy> refused;
  std::vector<std::string> parameters;  ///< with other gradients at some size, by name
  /// Both at the same sizes.
  struct Pair {
    Sizes sizes;
    std::shared_ptr<const Scenario> before, after;
  };
};

/// Compares what two scenarios with the same parameters hand to optimizers, for all sizes that are open in both, as
/// Prover does: at the same owner, and where an element has another owner, at whoever owns it. Factors of `backward`
/// count. What the sizes in the files are, and whether either is right, does not matter.
class SameProver {
 public:
  SameProver(const Scenario& before, const Scenario& after);
  ~SameProver();

  const SameProof& proof() const;
  /// Both at these sizes of axes that are open; nothing where one refuses them.
  std::optional<SameProof::Pair> at(const Sizes& sizes) const;
  /// Layouts at which they differ, unless cuts give no element the owners that it takes; those with the fewest ranks
  /// first. Until `visit` returns false.
  void each_suspect(const std::function<bool(const SameProof::Pair&)>& visit) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
