// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/json.h"
#include "lockstep/schedule.h"
#include "src/live/gradient_calls.h"
#include "src/live/placement.h"
#include "src/live/recorded_experts.h"

namespace lockstep::live {

/// What ranks do to a parameter's gradient by themselves, which no collective shows, and a capture not always.
struct LocalSteps {
  enum class Divides { no, in_backward, everywhere };
  Divides divides = Divides::no;   ///< by the group's size before sums: none, those within backward passes, all
  bool cleared_between = false;    ///< between micro-batches
  bool kept = false;               ///< nobody clears it between optimizer steps
  bool aside = false;              ///< what comes out of reductions is added up in another buffer
  bool as_seen = true;             ///< what was seen of scaling is all of it; else it is of no account
  std::optional<Rational> factor;  ///< at the end
  /// At the end it is divided by the tokens of all micro-batches, summed over these axes of the layout.
  std::optional<std::vector<std::string>> token_axes;

  friend bool operator==(const LocalSteps&, const LocalSteps&) = default;
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

/// What leaves each rank's optimizer its part of a parameter: the geometry of a reduce-scatter, or of a step that moves
/// nothing. Parameters with the same one are cut together.
struct Cut {
  Geometry::Kind kind = Geometry::Kind::parameter;
  /// Expressions; "": the default.
  std::string align, align_parameter, align_bucket;
  std::int64_t size = 0;      ///< of buckets; 0: one bucket
  std::vector<int> separate;  ///< parameters that have buckets of their own
  std::vector<int> own;       ///< axes of the mesh, over which optimizers own what no reduce-scatter has cut
  std::vector<int> apart;     ///< those that are cut alike and have another one are cut by themselves

  friend auto operator<=>(const Cut&, const Cut&) = default;
};

/// Everything that a recorded scenario is written from.
struct Recording {
  const CapturedRun* run = nullptr;
  std::vector<int> steps;  ///< of the run, ascending
  CapturedLoss loss = CapturedLoss::local_mean;
  std::vector<int> micro_batches;                 ///< by optimizer step
  std::vector<std::pair<std::string, int>> axes;  ///< of the layout with their sizes, the slowest first
  AxisNames names;
  std::vector<std::string> shares;    ///< axes that split the tokens of a loss, of which each rank's is a part
  std::vector<Placement> placements;  ///< by parameter
  Experts experts;
  std::vector<RecordedParameter> model;  ///< in the order of each rank's parameters
  std::vector<int> in_model;             ///< by parameter: the first of its parameters in the scenario
  std::vector<Cut> cuts;                 ///< by parameter
  GradientCalls calls;
};

/// What a framework usually does that no collective shows.
LocalSteps usual(const Recording& recording, int parameter);

/// Whether it makes a difference where what comes out of a parameter's reductions is added up.
bool may_be_aside(const Recording& recording, int parameter);

/// The scenario in which each parameter is treated as `local_steps` has it, by parameter.
Json scenario_of(const Recording& recording, const std::vector<LocalSteps>& local_steps);

/// What divides by the tokens of all micro-batches, summed over these axes.
std::string token_count_scale(const std::vector<std::string>& axes);

/// Whether the run has seen that somebody scales a parameter's gradient.
bool is_seen_scaled(const Recording& recording, int parameter);

/// Of the reductions that a parameter meets, those that sum, so that a rank may divide before them: within backward
/// passes, and outside.
std::pair<int, int> summed(const Recording& recording, int parameter);

}  // namespace lockstep::live
