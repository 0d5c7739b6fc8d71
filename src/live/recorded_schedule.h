// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/json.h"
#include "src/live/gradient_calls.h"
#include "src/live/placement.h"
#include "src/live/recorded_experts.h"

namespace lockstep::live {

/// What ranks do to a parameter's gradient by themselves, which no collective shows.
struct Unseen {
  enum class Divides { no, in_backward, everywhere };
  Divides divides = Divides::no;   ///< by the group's size before sums: none, those within backward passes, all
  bool cleared_between = false;    ///< between micro-batches
  bool kept = false;               ///< nobody clears it between optimizer steps
  std::optional<Rational> factor;  ///< at the end

  friend bool operator==(const Unseen&, const Unseen&) = default;
};

/// A parameter of the scenario. What several pipeline stages hold under other names, or not all of them, is as many
/// that are tied; experts of ranks along ep are together one.
struct RecordedParameter {
  std::string name;
  int parameter = 0;         ///< of the run
  std::optional<int> stage;  ///< none: all stages, or there is one
  int chunk = 0;
  std::string tied;  ///< "": not
};

/// Everything that a recorded scenario is written from.
struct Recording {
  const CapturedRun* run = nullptr;
  std::vector<int> steps;  ///< of the run, ascending
  CapturedLoss loss = CapturedLoss::mean;
  std::vector<int> micro_batches;                 ///< by optimizer step
  std::vector<std::pair<std::string, int>> axes;  ///< of the layout with their sizes, the slowest first
  AxisNames names;
  std::vector<std::string> shares;    ///< axes that split the tokens of a loss, of which each rank's is a part
  std::vector<Placement> placements;  ///< by parameter
  Experts experts;
  std::vector<RecordedParameter> model;  ///< in the order of each rank's parameters
  std::vector<int> in_model;             ///< by parameter: the first of its parameters in the scenario
  GradientCalls calls;
};

/// The scenario in which each parameter is treated as `unseen` has it, by parameter.
Json scenario_of(const Recording& recording, const std::vector<Unseen>& unseen);

/// Of the reductions that a parameter meets, those that sum, so that a rank may divide before them: within backward
/// passes, and outside.
std::pair<int, int> summed(const Recording& recording, int parameter);

}  // namespace lockstep::live
