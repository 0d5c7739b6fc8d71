// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/scenario.h"
#include "src/scenario/reading.h"

namespace lockstep {

/// The steps of a scenario, to be edited again and again: the layout, the model and the batch are read once.
class EditableSteps {
 public:
  /// `resolved` is a resolved document (Scenario::resolved) without a mistake. Throws InputError where it has one.
  explicit EditableSteps(const Json& resolved);

  /// Everything but the steps: those of `resolved`, until somebody replaces them.
  Schedule& schedule() { return schedule_; }
  const Schedule& schedule_of() const { return schedule_; }
  /// The plain steps as written in the document.
  const Json& written() const { return steps_; }
  /// What constant expressions of this scenario are worked out in.
  Environment environment() const { return reading_.environment(); }
  /// The document's steps after edits of steps; null where an edit cannot be applied.
  Json edited(const std::vector<Edit>& edits) const;
  /// Plain steps as read; nothing where they have a mistake. Selectors may match nothing: such a step does nothing.
  std::optional<std::vector<Step>> read(const Json& steps) const;

 private:
  static Schedule read_schedule(const Json& resolved, Reading& reading);

  mutable Reading reading_;  // its diagnostics are scratch
  // An edit leaves most steps as they are. By content; nothing for one with a mistake.
  mutable std::unordered_map<std::uint64_t, std::optional<Step>> read_;
  Json steps_;
  Schedule schedule_;
};

/// Equal for values of equal content, and for others only by an accident of 64 bits.
std::uint64_t content_hash(const Json& value);
/// The document with edits behind those that it has.
Json with_edits(const Json& document, const std::vector<Json>& edits);
Json with_edits(const Json& document, const std::vector<Edit>& edits);

}  // namespace lockstep
