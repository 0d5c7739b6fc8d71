// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/schedule/selector_list.h"

namespace lockstep::diagnosis {

/// A step where it stands: what an edit needs to name it and its neighbours. Points into the steps.
struct ListedStep {
  const Step* step;
  std::string each;          ///< name of the `each` that it stands in, "" at the top level
  std::string before, next;  ///< names of its neighbours in the same list, "" at the ends

  const std::string& name() const { return step->name; }  ///< "": a wait
  Op op() const { return step->op; }
};

/// All steps in order, nested ones behind their `each`.
std::vector<ListedStep> listed_steps(const std::vector<Step>& steps);
/// Null where there is none of that name.
const ListedStep* find_listed(const std::vector<ListedStep>& list, const std::string& name);

/// Steps that do one thing: a reduction and the scales that stand beside it, all of the same parameters, ranks,
/// micro-batches and buffer. Two or more each, in order.
std::vector<std::vector<const ListedStep*>> steps_together(const std::vector<ListedStep>& list);

/// Steps of one op in one list that do the same to other parameters, or with another root: those of two owners, say.
/// Two to sixteen each, in order; more are left out.
std::vector<std::vector<const ListedStep*>> steps_alike(const std::vector<ListedStep>& list);

/// Whether nothing was contributed yet beside the step: there is nothing to reduce or to scale.
bool is_before_contributions(const std::vector<ListedStep>& list, const ListedStep& step, bool after);

/// Whether a buffer holds anything of a parameter: that of the optimizer does, another one where a backward with the
/// parameter's uses writes it, or a step that adds another buffer or what is left over.
bool is_written(const std::vector<ListedStep>& list, const std::string& buffer, const std::string& result,
                const Parameter& parameter);

/// Which parameters a step acts on: by its selectors and, of a backward, its uses.
class ActingStep {
 public:
  explicit ActingStep(const Step& step);  ///< which must outlive it
  bool acts_on(const Parameter& parameter) const;

 private:
  const std::vector<std::string>& uses_;
  schedule::SelectorList params_;
};

}  // namespace lockstep::diagnosis
