// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/scenario.h"
#include "src/scenario/reading.h"
#include "src/scenario/step_tree.h"

namespace lockstep::scenario {

/// The steps of a scenario, to be edited again and again: the layout, the model and the batch are read once.
class EditableSteps {
 public:
  /// Those of a schedule, on these parameters. Throws InputError where they do not fit together.
  EditableSteps(const Schedule& schedule, std::vector<Parameter> parameters);

  /// Everything but the steps: those of the schedule, until somebody replaces them.
  Schedule& schedule() { return schedule_; }
  const Schedule& schedule_of() const { return schedule_; }
  /// The steps of the schedule.
  const std::vector<Step>& steps() const { return steps_; }
  /// What constant expressions of this scenario are worked out in.
  Environment environment() const { return reading_.environment(); }
  /// They after edits of steps; nothing where an edit cannot be applied. Coordinates that an edit
  /// brings are those at the sizes of this scenario.
  std::optional<std::vector<Step>> edited(const std::vector<const Edit*>& edits) const;
  std::optional<std::vector<Step>> edited(const std::vector<Edit>& edits) const;
  /// Whether a file could have these steps. Selectors may match nothing: such a step does nothing.
  bool are_valid(const std::vector<Step>& steps) const;

 private:
  bool is_valid(const Step& step, bool in_each) const;

  mutable Reading reading_;  // its diagnostics are scratch
  Schedule schedule_;
  std::vector<Step> steps_;
  std::vector<StepNode<Step>> nodes_;  // the same, for edits to begin with
};

/// The schedule with other parameters. Throws InputError where they do not fit together.
Schedule with_parameters(const Schedule& schedule, std::vector<Parameter> parameters);
/// Equal for steps that say the same in the same words, and for others only by an accident of 64 bits.
std::uint64_t content_hash(const std::vector<Step>& steps);

}  // namespace lockstep::scenario
