// SPDX-License-Identifier: Apache-2.0
//
// A case of a proof holds a schedule in which sizes are names. With numbers in their place it must be the schedule that
// is read where the file has these numbers.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lockstep/scenario.h"
#include "src/symbolic/parametric/cases.h"

namespace lockstep::test {

/// The document with numbers in the place of its sizes, and without what follows from these.
Json with_numbers(const Json& document, const Sizes& sizes);

/// What is not the same in a case with numbers put in and in the scenario read with them, a sentence each. `plain`: the
/// file read with the numbers, as plain steps and parameters; `file`: where what it names is looked for.
struct Comparison {
  std::vector<std::string> differences;
  int guards = 0, steps = 0, parameters = 0, classes = 0;
  std::string out_of_reach;  ///< why parameters were not compared by class
};
Comparison compare_with_numbers(const parametric::Case& one, const Sizes& sizes, const Scenario& plain,
                                const std::string& file);

}  // namespace lockstep::test
