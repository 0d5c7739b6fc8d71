// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/operation.h"
#include "src/diagnosis/candidates.h"
#include "src/diagnosis/step_list.h"
#include "src/scenario/step_keys.h"

namespace lockstep::diagnosis {

/// What all that makes edits of one step has in common: the step, its row in the table of operations, the words that
/// may be used, and the list to which edits are added. Refers to all of them.
class StepEditor {
 public:
  StepEditor(const ListedStep& listed, const CandidateValues& values, std::vector<Candidate>& candidates)
      : listed_(listed), step_(*listed.step), row_(operation(step_.op)), values_(values), candidates_(candidates) {}

 protected:
  bool takes(std::string_view word) const;
  bool has(std::string_view key) const { return scenario::says(step_, key); }
  void add(Candidate::Kind kind, Edit edit, std::vector<Candidate> together = {});
  /// Gives a key of the step another value; nothing where it has that already.
  template <typename Value>
  void set(Candidate::Kind kind, std::string_view key, Value Step::*member, Value value) {
    set(kind, scenario::with({}, key, member, std::move(value)));
  }
  /// The same for all keys that `values` says.
  void set(Candidate::Kind kind, Step values);
  void set_condition(Candidate::Kind kind, std::string_view key, std::optional<Expression> Step::*member,
                     const std::string& text) {
    set(kind, key, member, std::optional(Expression::parse(text)));
  }
  /// Removes a key; nothing where the step does not have it.
  void remove(Candidate::Kind kind, std::string_view key);

  const ListedStep& listed_;
  const Step& step_;
  const Operation& row_;
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
  /// A plain number may be a size of the layout that somebody has written down.
  void replace_numbers(const Product& old);
  /// Divisors by token counts, with and without what else divides.
  void normalize(const Product& old);
  /// What the rank counts in one micro-batch, counted over several ranks and the micro-batches.
  void count_everywhere(const Product& old);
  void set_factor(const Product& by);
};

/// Edits of what a step acts on: its parameters, their uses, and how it cuts them.
class ParameterEdits : private StepEditor {
 public:
  using StepEditor::StepEditor;
  void geometry();
  void parameters();
  void uses();

 private:
  void change_geometry(std::string_view key, Geometry geometry);
  void set_selectors(std::vector<std::string> items);
};

}  // namespace lockstep::diagnosis
