// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "lockstep/check.h"

namespace lockstep::cli {

/// What a list says of one scenario. "-" where there is nothing to say.
struct ScenarioRow {
  std::string file;
  std::string name;             ///< the file's, where it is not valid
  std::string project, number;  ///< of its source: "NVIDIA/Megatron-LM", "#844"; "" without one
  std::string title;
  std::string axes;       ///< larger than 1, slowest first: "pp 2, dp 2"
  std::string verdict;    ///< "match", …
  std::string mistake;    ///< its kind (name_of(Mistake)), "none" where it matches
  std::string factor;     ///< against the right gradient, where it is one number; "norm" where only that is wrong
  std::string replicas;   ///< what a comparison of replicas says of a mismatch: "agree", "differ", …
  std::string tolerance;  ///< what one with one device that accepts an error of 8 % says: "passes", "fails"

  std::pair<std::string, std::string> source() const { return {project, number}; }
};

/// Of a result of the symbolic engine. Replays the scenario once more for each of its edits.
ScenarioRow row_of(const CheckResult& result);

}  // namespace lockstep::cli
