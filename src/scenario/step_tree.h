// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/json.h"

namespace lockstep {

/// Plain steps as edits change them: a list of steps, of which an `each` has a list of its own.
struct StepNode {
  Json step;                        ///< an `each` without its "steps"
  std::optional<Place> body_place;  ///< of "steps", for an `each`
  std::vector<StepNode> body;
  std::string iteration;  ///< condition for the one iteration in which an edit put it; "" for all

  std::string name() const;  ///< "" without one
  bool is_each() const { return body_place.has_value(); }
};

class StepTree {
 public:
  explicit StepTree(const Json& steps);
  Json json() const;

  /// A step: `parent` is null at the top level, else the `each` that it stands in.
  struct Position {
    StepNode* parent = nullptr;
    std::size_t index = 0;
  };
  std::optional<Position> find(const std::string& name);
  StepNode& at(const Position& position) { return list_of(position)[position.index]; }
  std::vector<StepNode>& list_of(const Position& position) {
    return position.parent != nullptr ? position.parent->body : steps_;
  }

  /// All names, nested ones too.
  std::vector<std::string> names() const;
  /// Removes the waits for these steps: with nothing in flight they would do nothing.
  void remove_waits(const std::vector<std::string>& for_steps);

  static StepNode node_of(const Json& step);
  static Json json_of(const StepNode& node);
  /// Names of a step and, for an `each`, of those inside.
  static std::vector<std::string> names_in(const StepNode& node);

 private:
  Place place_;
  std::vector<StepNode> steps_;
};

}  // namespace lockstep
