// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comparison.h"
#include "lockstep/scenario.h"

namespace lockstep {

/// Calls of one function, in groups of one size, of all ranks together.
struct CallDifference {
  std::string op;    ///< "all_reduce", "reduce_scatter (avg)"
  std::string call;  ///< "train.py in main", without the line, which any edit moves; "" where it is not known
  int group = 0;     ///< how many ranks are in it; 0: of sends and receives
  std::int64_t calls_before = 0, calls_after = 0;        ///< 0: none
  std::int64_t elements_before = 0, elements_after = 0;  ///< that the ranks put in
  bool changed() const { return calls_before != calls_after || elements_before != elements_after; }
};

/// Elements of which it is not known what the optimizers get.
struct UndecidedGradient {
  std::string parameter, elements, why;  ///< elements: "[0, 8)"; why: a sentence without a period
};

/// What the code of two extractions, or a scenario and the code of one, hand to the optimizers (docs/extract.md), held
/// against each other exactly.
struct ExtractionComparison {
  enum class Verdict { same, other, undecided };

  bool with_scenario = false;  ///< the old one is a scenario

  std::string before, after;       ///< files
  std::vector<std::string> apart;  ///< why they cannot be compared: sentences; then there is nothing else
  std::vector<std::pair<std::string, int>> axes;  ///< of the mesh, slowest first
  int world = 0;
  int steps = 0;              ///< optimizer steps that were compared
  int step = 0;               ///< the first with a difference; else the first
  int parameters = 0;         ///< with a scenario: of both, that were compared
  std::int64_t elements = 0;  ///< that optimizers get, of all ranks and of the steps that were compared together
  /// Of the first optimizer step with a difference, by parameter. A formula is "nothing" where no optimizer gets it.
  std::vector<GradientDifference> gradients;
  std::vector<UndecidedGradient> undecided;
  std::vector<std::pair<std::string, int>> ownership;  ///< parameters, and how many ranks read other elements of them
  std::vector<std::string> only_before, only_after;    ///< parameters of one alone
  /// With a scenario: of which parameters ranks along an axis yield one gradient in one of the two, and shares of one
  /// in the other: sentences.
  std::vector<std::string> placements;
  /// With a scenario: of which parameters one of the two has one tensor where the other has several: sentences.
  std::vector<std::string> ties;
  /// Calls that do not meet, and ranks that wait for ever, as `check` says them: sentences.
  std::vector<std::string> unmet_before, unmet_after;
  std::vector<std::string> notes;  ///< sentences
  /// All, by their first call. With a scenario: first its steps that communicate, which have no elements here.
  std::vector<CallDifference> calls;

  Verdict verdict() const;
};

/// Reads, composes and compares two extractions. Throws as verify_extraction(). Complexity: near linear in the events
/// of all ranks, the terms of each distinct sum, and the stretches of elements that ranks read, times the ranks that
/// read one where they get different sums.
ExtractionComparison compare_extractions(const std::shared_ptr<const Source>& before,
                                         const std::shared_ptr<const Source>& after);

/// What the code calls parameters of a scenario, where that is something else: `*` stands for the same text in both.
using ParameterNames = std::vector<std::pair<std::string, std::string>>;

/// The same of a scenario, which has plain steps for one layout, and an extraction of code that is to do what it says.
/// Contributions are those of the scenario: ranks of which it says that they yield one gradient count as one. Throws
/// as verify_extraction(), as compare() of scenarios where the scenario is too large, and InputError for a name that no
/// parameter of the scenario has. Complexity: as both.
ExtractionComparison compare_with_scenario(const Scenario& scenario, const std::shared_ptr<const Source>& code,
                                           const ParameterNames& names = {});

}  // namespace lockstep
