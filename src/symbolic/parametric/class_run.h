// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/symbolic/parametric/classes.h"
#include "src/symbolic/parametric/evaluator.h"

namespace lockstep::parametric {

/// A kind of unknown in the buffers of a class: a contribution of one site's use in a micro-batch, or a leftover.
struct Atom {
  int site_use = 0;  ///< index into Logical::uses
  int optimizer_step = 0;
  int micro_batch = -1;   ///< from 0 in the optimizer step; -1: any, all of them alike
  std::string leftover;   ///< its `what`; empty for a contribution
  bool per_rank = false;  ///< leftover
  auto operator<=>(const Atom&) const = default;
};

/// Who owns an element, as a name: the rank of a group in whose slice it lies.
struct Owner {
  std::string key;             ///< owners of equal keys are one
  const Step* step = nullptr;  ///< a step that cuts so
  int stage = 0;               ///< on this stage
  std::vector<int> levels;     ///< on which it has a coordinate
  std::string inside;          ///< key of the owners whose part is cut; "": the whole buffer
};

/// The names of a class on each level, found as its steps need them.
struct Names {
  std::vector<Owner> owners;
  std::vector<std::vector<int>> constants;  ///< by level
};

/// What can be wrong with a parameter.
enum class Fault {
  value,           ///< an element that its owner has wrong: the value is the difference from one device's
  unowned,         ///< an element that nobody answers for: the value is how many do, and wrong where it is 0
  norm,            ///< an element that a rank's norm does not count once: the value is the count less 1
  norm_averaged,   ///< one that several ranks' norms count of which the rank takes the mean
  norm_too_early,  ///< one that is counted before it is final, or by a rank that does not own it
  race             ///< a rank that touches a buffer, or ends its list, while an asynchronous step has it
};

/// Whether it is a rank's norm that is wrong, whoever holds the element: the contributor's name stands for the piece in
/// which that lies.
constexpr bool is_of_count(Fault fault) { return fault == Fault::norm || fault == Fault::norm_averaged; }
constexpr bool is_of_norm(Fault fault) { return is_of_count(fault) || fault == Fault::norm_too_early; }

/// Ranks, contributors and elements that are related in one way, and what is wrong there.
struct Cell {
  Fault fault = Fault::value;
  int optimizer_step = 0;
  int atom = -1;                ///< index into ClassResult::atoms: value; a norm that counts before it has this one
  std::vector<int> partitions;  ///< by level; -1: any
  int value = 0;                ///< a polynomial
};

/// A step as the class went through it, for the printed proof: what it did, and what the buffers hold after it. Numbers
/// are diagrams where nothing else is said.
struct Recorded {
  const Step* step = nullptr;
  EvaluationContext context;
  int on = 0;  ///< ranks that do it; of a norm, that call it
  Group group;
  int by = 1;                             ///< scale: a polynomial
  std::vector<std::pair<int, int>> root;  ///< level and coordinate
  struct Cut {
    int owner = -1;  ///< -1: of one rank alone
    int on = 0;
    int elements = 1;  ///< that are cut
  };
  std::vector<Cut> cuts;
  struct Share {
    int atom = 0;
    int on = 0;
    int by = 1;  ///< a polynomial
  };
  std::vector<Share> adds;
  int counts = 0;                                   ///< norm: ranks whose own elements count
  int norm = 0;                                     ///< how often the sum that a rank gets counts an element
  int races = 0;                                    ///< ranks that touch what an asynchronous step still has
  std::map<std::string, std::vector<int>> buffers;  ///< by name: a diagram for each atom
  int owned = 1;
};

/// How an optimizer step ended, for the printed proof. Numbers are diagrams.
struct StepOutcome {
  int optimizer_step = 0;
  std::vector<int> references, differs;  ///< by atom; differs: where the owner holds it
  struct Family {                        ///< ranks that answer for elements together
    int on = 0;
    std::vector<int> levels;  ///< along these
    int owners = 0;           ///< how many
  };
  std::vector<Family> families;
  bool has_norm = false;
  int norm = 0;                     ///< how often a rank's norm counts an element
  std::vector<int> norm_too_early;  ///< by norm step that was called
  int in_flight = 0;
};

/// What the optimizers get at the end of an optimizer step: diagrams.
struct Handed {
  std::vector<int> held;  ///< by atom
  int owned = 0;          ///< a condition on the rank and the owners
};

struct ClassResult {
  const Class* members = nullptr;
  std::unique_ptr<Diagrams> diagrams;
  std::vector<Owner> owners;
  std::vector<Atom> atoms;
  std::vector<Cell> cells;  ///< everything that is wrong at some size
  Names names;
  bool unrolled = false;        ///< looked at each micro-batch by itself
  int domain = 1;               ///< ranks that hold the parameter
  std::vector<int> cut_levels;  ///< along these the contributor's name also stands for the piece of the parameter
  std::vector<Recorded> recorded;
  bool ended = false;  ///< by a race, where there is one at the only sizes that are looked at
  std::vector<StepOutcome> outcomes;
  std::vector<Handed> handed;  ///< by optimizer step
  /// By atom: what `backward` multiplied the contribution with, the last where several did. A diagram of the rank that
  /// adds it; 0 for leftovers.
  std::vector<int> factors;
  std::size_t steps = 0;  ///< that it went through
};

/// Takes the parameters of a class through the schedule, for all ranks at once. Throws OutOfReach, and NeedsUnrolling
/// where not every micro-batch goes through the same and their number is open. `record`: for the printed proof.
/// `known`: names that are kept from the beginning; `unrolled`: looks at each micro-batch by itself at once.
ClassResult run_class(World& world, const StepSelections& selections, const Class& members, bool record);
ClassResult run_class(World& world, const StepSelections& selections, const Class& members, bool record,
                      const Names& known, bool unrolled);

}  // namespace lockstep::parametric
