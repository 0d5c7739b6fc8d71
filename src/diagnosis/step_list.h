// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/json.h"
#include "src/schedule/selector_list.h"

namespace lockstep {

/// A plain step where it stands: what an edit needs to name it and its neighbours.
struct ListedStep {
  Json step;
  std::string name;  ///< "": a wait
  Op op = Op::zero;
  std::string each;          ///< name of the `each` that it stands in, "" at the top level
  std::string before, next;  ///< names of its neighbours in the same list, "" at the ends
};

/// All steps in order, nested ones behind their `each`.
std::vector<ListedStep> listed_steps(const Json& steps);
/// Null where there is none of that name.
const ListedStep* find_listed(const std::vector<ListedStep>& list, const std::string& name);
/// The selectors of a plain step, or of a list in their place.
SelectorList selectors_of(const Json* params);

/// Which parameters a plain step acts on: by its selectors and, of a backward, its uses.
class ActingStep {
 public:
  explicit ActingStep(const Json& step);  ///< which must outlive it
  bool acts_on(const Parameter& parameter) const;

 private:
  const Json* uses_;
  SelectorList params_;
};

/// The text of a member, or "" where it is not there or not a text.
std::string text_of(const Json& object, const char* key);

}  // namespace lockstep
