// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/operation.h"
#include "src/diagnosis/candidates.h"
#include "src/diagnosis/step_list.h"

namespace lockstep {

/// What all that makes edits of one step has in common: the step, its row in the table of operations, the words that
/// may be used, and the list to which edits are added. Refers to all of them.
class StepEditor {
 public:
  StepEditor(const ListedStep& step, const CandidateValues& values, std::vector<Candidate>& candidates)
      : step_(&step), row_(&operation(step.op)), values_(values), candidates_(candidates) {}

 protected:
  const Json* key(const char* word) const { return step_->step.find(word); }
  bool takes(std::string_view word) const;
  void add(Candidate::Kind kind, Edit edit);
  /// Sets a key of the step to a value, null to remove it; nothing where it is so already.
  void set(Candidate::Kind kind, const char* word, const Json& value);

  const ListedStep* step_;
  const Operation* row_;
  const CandidateValues& values_;

 private:
  std::vector<Candidate>& candidates_;
};

/// Edits of the number by which a step multiplies: times and over each size and token count, and sum for average.
class FactorEdits : private StepEditor {
 public:
  using StepEditor::StepEditor;
  void factor();
  void reduction();

 private:
  /// Divisors by token counts, with and without what else divides.
  void normalize(const Product& old);
  void set_factor(const Product& by);
};

/// Edits of what a step acts on: its parameters, their uses, and how it cuts them.
class ParameterEdits : private StepEditor {
 public:
  using StepEditor::StepEditor;
  void geometry();
  void parameters();
  void uses();
};

}  // namespace lockstep
