// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/json.h"
#include "lockstep/schedule.h"

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
/// Whether the selectors of a plain step, or those of a list in its place, choose a parameter.
bool chooses(const Json* params, const Parameter& parameter);
/// Whether a plain step acts on a parameter: by its selectors and, of a backward, its uses.
bool acts_on(const Json& step, const Parameter& parameter);
/// The text of a member, or "" where it is not there or not a text.
std::string text_of(const Json& object, const char* key);

}  // namespace lockstep
