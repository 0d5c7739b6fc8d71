// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/symbolic.h"

namespace lockstep::diagnosis {

/// Prints the forms of one engine, each once: equal content on many ranks costs one formula. Both
/// arguments must outlive it.
class Formulas {
 public:
  Formulas(const Schedule& schedule, const FormReader& engine) : schedule_(&schedule), engine_(&engine) {}

  /// `form` as it is read from buffer `buffer` of `rank` in an optimizer step.
  const std::string& formula(int form, int rank, int buffer, int optimizer_step);
  /// The reference_terms of a buffer's piece.
  const std::vector<Term>& support(int rank, int buffer, int optimizer_step);

 private:
  const Schedule* schedule_;
  const FormReader* engine_;
  // What a formula depends on: the form, the local model, the buffer in it, the optimizer step.
  std::map<std::tuple<int, int, int, int>, std::string> formulas_;
  std::map<std::tuple<int, int, int>, std::vector<Term>> supports_;
};

}  // namespace lockstep::diagnosis
