// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/scenario.h"
#include "src/live/extraction.h"

namespace lockstep::live {

/// How what a scenario speaks of and what an extraction does correspond: ranks, micro-batches, parameters.
struct ScenarioAlignment {
  std::vector<std::string> apart;  ///< why they are not compared: sentences; then there is nothing else
  std::vector<std::string> notes;  ///< sentences
  int steps = 0;                   ///< optimizer steps that both have
  /// By axis of the code, the scenario's; none for those of one rank.
  std::vector<std::optional<Axis>> axes;
  /// By the code's parameter, the scenario's logical one, of several copies the first unless they are held_apart(); -1:
  /// none.
  std::vector<int> logical_of;
  /// The same by all names that the code has for one.
  std::map<std::string, int> logical_named;
  /// By logical parameter of the scenario: the code's, by their numbers.
  std::vector<std::vector<int>> code_of;
  std::vector<std::string> only_scenario, only_code;  ///< that are trained
  /// By number of the code's parameter: it has another shape in the scenario.
  std::vector<int> other_shape;
  /// Of which parameters one of the two has one tensor where the other has several: sentences. They are not compared.
  std::vector<std::string> ties;
};

/// By logical parameter: whether some rank holds several copies of it, which then are tensors of their own.
std::vector<char> held_apart(const Model& model);

/// `names`: what the code calls parameters of the scenario; `*` stands for the same text in both. Throws InputError for
/// a name that no parameter of the scenario has.
ScenarioAlignment align(const Scenario& scenario, const Extraction& code,
                        const std::vector<std::pair<std::string, std::string>>& names);

}  // namespace lockstep::live
