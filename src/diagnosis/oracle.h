// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/diagnosis/resolved_steps.h"
#include "src/scenario/editable_steps.h"
#include "src/schedule/walk_memory.h"
#include "src/symbolic/memory.h"

namespace lockstep::diagnosis {

/// What an engine says of a schedule after an edit.
struct OracleAnswer {
  enum class State {
    not_applicable,  ///< the edit cannot be applied, or a step cannot be evaluated with it
    failed,          ///< deadlock, invalid collective or race
    wrong,
    right
  };
  State state = State::not_applicable;
  /// State `wrong`: buffers that are wrong in value, or whose elements are unowned or counted wrong, by parameter
  /// (index into Model::parameters()).
  std::vector<int> wrong_buffers;
  std::vector<int> wrong_norms;  ///< how many of these are counted wrong
  std::vector<int> wrong_clips;  ///< how many are right but for the norm that they are clipped by
  int count = 0;                 ///< of them all
  /// Of them all: 1 for one multiple of what is right and for what is right but clipped by another norm, 2 for anything
  /// else.
  int distance = 0;
  bool ran = false;        ///< to its end, so that what follows is known
  double sent_bytes = 0;   ///< in the first optimizer step, by the rank that sends most
  std::size_t owners = 0;  ///< a hash of who owns what in the end

  bool right() const { return state == State::right; }
};

/// An engine that can say of one scenario, again and again, whether it is right after an edit of its steps: the only
/// thing that a search over edits knows of engines.
class Oracle {
 public:
  virtual ~Oracle() = default;
  virtual OracleAnswer answer(const std::vector<Edit>& edits) = 0;
};

/// The symbolic engine as an oracle: exact, for the sizes of the scenario. What it answers shares what does not depend
/// on the steps, and of those that come to the same one is replayed.
class SymbolicOracle : public Oracle {
 public:
  /// Of a schedule on these parameters. Throws InputError where they do not fit together.
  SymbolicOracle(const Schedule& schedule, std::vector<Parameter> parameters)
      : steps_(schedule, std::move(parameters)) {}
  OracleAnswer answer(const std::vector<Edit>& edits) override;
  /// The same for steps.
  OracleAnswer answer_for(std::vector<Step> steps);
  /// The same without a copy: they are what they were when it returns or throws.
  OracleAnswer answer_in_place(std::vector<Step>& steps);
  /// Of the steps as they are, which failed: what they would have done where each race is waited for.
  void add_what_ran(OracleAnswer& answer) const;
  const scenario::EditableSteps& steps() const { return steps_; }
  scenario::EditableSteps& steps() { return steps_; }

 private:
  OracleAnswer known_answer();
  OracleAnswer replay();

  scenario::EditableSteps steps_;
  // Of the schedule of steps_.
  std::unique_ptr<symbolic::SymbolicMemory> memory_;
  std::shared_ptr<schedule::WalkMemory> walks_;
  std::unique_ptr<ResolvedSteps> resolved_;
  std::unordered_map<std::uint64_t, OracleAnswer> answers_;  // by ResolvedSteps::hash()
};

}  // namespace lockstep::diagnosis
