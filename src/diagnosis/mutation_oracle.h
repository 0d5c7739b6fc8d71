// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/scenario.h"
#include "lockstep/verdict.h"
#include "src/scenario/editable_steps.h"

namespace lockstep::diagnosis {

/// What the engines say of an edited schedule at one layout.
struct MutantOutcome {
  bool applicable = false;  ///< the edit can be applied, and every step of the result can be evaluated
  Verdict verdict = Verdict::error;
  /// The parametric engine says that it is wrong too; "" in `parametric_limit` where it could follow every step.
  bool parametric_wrong = false;
  std::string parametric_limit;
  /// Verdict `mismatch`, where these were asked for: whether they would have noticed.
  bool replicas_differ = false;
  bool beyond_tolerance = false;  ///< of 8 %
};

/// A layout at which edits of a schedule are tried.
class MutationOracle {
 public:
  /// Of a schedule, on these parameters. Throws InputError where they do not fit together.
  MutationOracle(const Schedule& schedule, std::vector<Parameter> parameters)
      : steps_(std::make_shared<scenario::EditableSteps>(schedule, std::move(parameters))) {}
  explicit MutationOracle(const Schedule& schedule) : MutationOracle(schedule, schedule.model.parameters()) {}
  /// What becomes of it with these steps. Throws InternalError where the engines disagree.
  MutantOutcome judge(std::vector<Step> steps);
  /// The same with the steps as they are.
  MutantOutcome judge() { return judge(steps_->steps()); }
  /// Whether the symbolic engine says `match`.
  bool is_right(std::vector<Step> steps);
  const scenario::EditableSteps& steps() const { return *steps_; }

 private:
  std::shared_ptr<scenario::EditableSteps> steps_;
};

/// Axes of a scenario's layout with a size above 1, by their key in "layout".
std::map<std::string, int> axes_in_play(const Scenario& scenario);

/// Where edits are tried first: at the file's own sizes where these are small. Else with its axes at 2 and two
/// micro-batches where that is possible; as large as in the file where it is not, or where it is not right there.
struct SmallScenario {
  std::shared_ptr<const Scenario> scenario;
  std::map<std::string, int> axes;
  int micro_batches = 0;  ///< 0: as in the file
  std::string sizes;      ///< "tp 2, dp 2, 2 micro-batches"
  bool as_in_file = false;
};
SmallScenario small_scenario(const std::shared_ptr<const Scenario>& scenario);

/// An oracle at other sizes.
struct NeighbourLayout {
  std::unique_ptr<MutationOracle> oracle;  ///< one parameter of each class
  std::shared_ptr<const Scenario> scenario;
  std::string sizes;
  std::string
      axis;  ///< that has another size than at the small layout; "" for the number of micro-batches, "the file's own"
};
/// Around the small layout, where the scenario is right: one axis at a time, and the micro-batches, at 1 to 3 (with
/// experts axes at 4 too); and at the file's own sizes, where these have at most 64 ranks.
std::vector<NeighbourLayout> layouts_around(const Scenario& scenario, const SmallScenario& small);

}  // namespace lockstep::diagnosis
