// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/scenario.h"
#include "lockstep/verdict.h"
#include "src/diagnosis/candidates.h"

namespace lockstep::diagnosis {

/// A right schedule after one edit, and what the engines say of it.
struct Mutant {
  std::string_view kind;  ///< "dropped", "moved", …, as tables name it
  std::string step;       ///< that the edit changes or removes; "" where it changes a parameter
  Json edit;              ///< in the scenario's words, to stand behind those of the file
  enum class Fate {
    killed,      ///< something is wrong with it
    equivalent,  ///< right for every size, by proof
    unproved     ///< right at every layout that was tried, and that is all that is known
  };
  Fate fate = Fate::killed;
  Verdict verdict = Verdict::match;  ///< killed: what is wrong
  bool symbolic = false;             ///< killed at the small layout, by the symbolic engine
  bool parametric = false;           ///< killed there or at other sizes by the parametric engine
  std::string sizes;                 ///< killed, but right at the small layout: the smallest sizes at which it is wrong
  /// A scenario with the edit, at the small layout or at `sizes`. What it expects is that of the file; whoever writes
  /// it replaces that.
  Json document;
  std::string why;                ///< unproved: what the proof could not do; half a sentence
  bool replicas_differ = false;   ///< verdict `mismatch`: a comparison of replicas sees it
  bool beyond_tolerance = false;  ///< verdict `mismatch`: a comparison with one device sees it that accepts 8 %
};

/// All mutants of one scenario.
struct Mutation {
  std::shared_ptr<const Scenario> scenario;
  std::string sizes;            ///< of the small layout: "tp 2, dp 2, 2 micro-batches"
  bool as_in_file = false;      ///< these are the file's own
  std::string base;             ///< what is known of the schedule without an edit: "right for every size"
  std::vector<Mutant> mutants;  ///< no two with the same steps, in the order of the steps
  int invalid = 0;              ///< edits that cannot be applied
  int untried = 0;              ///< edits that were not looked at, as it would be too much
  std::string cut_off;          ///< why not: half a sentence; "" where all were
  int same = 0;                 ///< edits that change nothing or say the same as another one
  double seconds = 0;
};

/// Mutants by what became of them.
struct MutantCounts {
  int mutants = 0, killed = 0;
  int symbolic = 0;    ///< killed by the symbolic engine
  int parametric = 0;  ///< killed by the parametric engine
  int elsewhere = 0;   ///< killed, but right at the small layout
  int equivalent = 0, unproved = 0;
  int values = 0;     ///< killed because values, owners or a norm are wrong; the others never come to an end, or race
  int replicas = 0;   ///< of `values`: killed by a comparison of replicas too
  int tolerance = 0;  ///< of `values`: killed by a comparison with one device too that accepts an error of 8 %

  void add(const Mutant& mutant);
  void add(const MutantCounts& other);
};
MutantCounts counts_of(const std::vector<Mutant>& mutants);

/// All kinds, in the order of tables.
std::vector<std::string_view> mutant_kinds();

struct MutationOptions {
  std::function<void(std::int64_t done, std::int64_t all)> progress;
};

/// Applies every single edit to a scenario that is right, and lets the engines judge each: the symbolic and the
/// parametric engine at a small layout, and whatever is right there the parametric engine for every size; where that
/// has no answer, the symbolic engine at layouts around it. Throws InternalError where engines disagree.
Mutation mutate(const std::shared_ptr<const Scenario>& scenario, const MutationOptions& options);

}  // namespace lockstep::diagnosis
