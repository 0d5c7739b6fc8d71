// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/parametric.h"
#include "lockstep/scenario.h"
#include "lockstep/verdict.h"
#include "src/diagnosis/outcome_verdict.h"

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
  std::vector<std::string> engines;  ///< killed: "symbolic" where that replayed it, "parametric" where that sees it too
  /// Killed, but right at the small layout: other sizes at which it is wrong, the smallest where a proof found them.
  std::string sizes;
  /// A scenario with the edit, at the small layout or at `sizes`. What it expects is that of the file; whoever writes
  /// it replaces that.
  Json document;
  std::string why;  ///< unproved: what the proof could not do; half a sentence
};

/// All mutants of one scenario.
struct Mutation {
  std::shared_ptr<const Scenario> scenario;
  std::shared_ptr<const Scenario> small;  ///< at the layout where edits are tried first
  bool as_in_file = false;                ///< that is the file's own
  std::string base;                       ///< what is known of the schedule without an edit: "right for every size"
  std::vector<Mutant> mutants;            ///< no two with the same steps and parameters, in the order of the steps
  int unproved = 0;                       ///< mutants that are
  int invalid = 0;                        ///< edits that cannot be applied
  int untried = 0;                        ///< edits that were not looked at, as it would be too much
  std::string cut_off;                    ///< why not: half a sentence; "" where all were
  int same = 0;                           ///< edits that change nothing or say the same as another one
  double seconds = 0;
};

/// What judges mutants.
struct MutationEngines {
  std::function<Verdict(const Schedule&)> symbolic = replayed_verdict;
  std::function<ParametricResult(const Schedule&)> parametric = run_parametric;
};

/// Applies every single edit to a scenario that is right, and lets the engines judge each: the symbolic and the
/// parametric engine at a small layout, and whatever is right there the parametric engine for every size, beside the
/// symbolic engine at layouts around it. Throws InternalError where engines disagree.
Mutation mutate(const std::shared_ptr<const Scenario>& scenario, const MutationEngines& engines = {});

}  // namespace lockstep::diagnosis
