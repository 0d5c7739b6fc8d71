// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/check.h"
#include "src/diagnosis/candidates.h"
#include "src/diagnosis/oracle.h"
#include "src/diagnosis/shrink.h"
#include "src/diagnosis/step_list.h"

namespace lockstep::diagnosis {

/// The small scenario in which the same goes wrong as in a result, where edits are tried. Refers to the result.
class SearchSpace {
 public:
  /// `small` as smallest_layout() finds it, or an empty one for the file's own sizes.
  SearchSpace(const CheckResult& result, SmallLayout small);
  /// Whether anything goes wrong there; without it nothing else has a meaning.
  bool found() const { return found_; }

  const scenario::EditableSteps& steps() const { return all_->steps(); }
  const FileSizes& sizes() const { return sizes_; }
  /// What comes of the schedule as it is.
  const OracleAnswer& base() const { return base_; }
  /// Words that edits can be made of, those alone that can explain by how much contributions are wrong.
  const CandidateValues& values() const { return values_; }
  /// A layout that could not be made small allows fewer schedules.
  int most_tried() const { return most_tried_; }
  /// The steps of the framework or of the file's list, without the file's edits; nothing where there are none.
  std::optional<std::vector<Step>> unedited_steps() const;

  /// First with a few of the parameters that are wrong, then with all. The steps are as they were when it returns.
  OracleAnswer answer(std::vector<Step>& steps);
  /// Nothing is wrong with the few, less than before with all, and nothing that was right.
  bool mends_the_few(const OracleAnswer& now) const;
  /// Less of what is wrong is wrong, and nothing that was right.
  bool is_better(const OracleAnswer& now) const;
  /// Whether an edit of `steps` acts on anything that is wrong, before or after; a step on other parameters alone
  /// repairs nothing.
  bool is_relevant(const Candidate& candidate, const std::vector<ListedStep>& steps) const;
  /// Whether it changes a step that acts on nothing that is wrong.
  bool acts_elsewhere(const Candidate& candidate) const;
  /// Whether something changes for parameters that are right.
  bool touches_right(const std::vector<Candidate>& edits) const;
  /// Whether the edits give these steps in the file too. A step that an edit of the file put into one iteration
  /// keeps that, whatever `set` says of its `when`.
  bool says_the_same_in_the_file(const std::vector<const Candidate*>& edits, const std::vector<Step>& steps) const;

 private:
  bool find();
  void limit();
  void find_values();

  const CheckResult& result_;
  FileSizes sizes_;
  std::shared_ptr<const CheckResult> small_;  // at those sizes, all parameters
  std::unique_ptr<SymbolicOracle> all_;       // one parameter of each class
  std::unique_ptr<SymbolicOracle> few_;       // some that are wrong; null where nothing goes wrong with them alone
  OracleAnswer base_, few_base_;
  CandidateValues values_;
  int most_tried_ = 0;
  bool found_ = false;
};

}  // namespace lockstep::diagnosis
