// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "src/live/explain.h"
#include "src/live/judge.h"

namespace lockstep::live {

/// Formulas that are tried on the results of a cell whose contributions cannot be told apart: those of other
/// parameters, and those that mistakes have everywhere.
class Trials {
 public:
  struct Found {
    Explanation explanation;
    Left left;
    bool of_others = false;
  };

  /// All must outlive it. `columns`: of the cell, all with an expected coefficient.
  Trials(const Ground& ground, const Cell& cell, const Columns& columns, Earlier earlier, DesignCache& cache);
  /// The first that leaves nothing but noise of the result that the optimizers of `ranks` get.
  std::optional<Found> first_that_fits(const Problem& problem, const std::vector<int>& ranks);

 private:
  struct Trial {
    std::vector<const Column*> columns;
    std::vector<Rational> coefficients;  // by column
    Design design;
    bool of_others = false, is_kept = false;
    std::map<const Basis*, SolvedDesign> solved;  // where it is kept
  };

  std::optional<Found> attempt(const Problem& problem, Trial& trial);
  std::optional<Trial> of_pattern(const Pattern& pattern, bool of_others);
  static Trial of_coefficients(std::vector<const Column*> columns, std::vector<Rational> coefficients);
  /// `own`: of these data-parallel coordinates alone; none: of all.
  std::vector<Trial> usual(const std::vector<int>* own) const;
  std::vector<Trial> left_by_earlier_steps();
  void prepare();

  const Ground& ground_;
  const Cell& cell_;
  std::vector<const Column*> own_;  // the cell's
  Earlier earlier_;
  DesignCache& cache_;
  bool is_prepared_ = false;
  std::vector<Trial> others_, usual_;  // no result changes them
};

}  // namespace lockstep::live
