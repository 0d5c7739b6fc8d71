// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/scenario.h"
#include "src/scenario/editable_steps.h"

namespace lockstep::diagnosis {

/// A scenario at many sizes, with one edit after the other: each size is read and expanded once, whatever the number of
/// edits is. Not for several threads at once.
class MutationSizes {
 public:
  /// `file`: of the scenario, in whose folder frameworks and models of its own are named.
  explicit MutationSizes(std::string file) : file_(std::move(file)) {}
  /// What is read from now on has this edit behind those of the file. What was read before must not be used any more.
  void set_edit(const Edit& edit);
  /// The same without an edit.
  void clear_edit();

  /// The document of a scenario, which differs between calls in its layout and batch alone, with the edit. Throws
  /// InputError where it is refused or the edit cannot be applied. Selectors may match nothing at these sizes.
  Scenario read(const Json& document);

 private:
  struct Entry {
    std::vector<Diagnostic> refused;  ///< empty where the scenario can be read
    Scenario scenario;                ///< without the edit and without a schedule
    std::shared_ptr<scenario::EditableSteps> steps;
    int edit = -1;  ///< that its schedule has now
  };
  Entry& entry(const Json& document);

  std::string file_;
  std::map<std::string, Entry> entries_;  // by layout and batch
  std::vector<Edit> edit_;
  int number_ = 0;
};

}  // namespace lockstep::diagnosis
