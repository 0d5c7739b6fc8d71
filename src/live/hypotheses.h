// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "src/live/explain.h"
#include "src/live/verify_cell.h"

namespace lockstep::live {

/// Formulas that are tried on the results of a cell whose contributions cannot be told apart: those of other
/// parameters, and those that mistakes have everywhere.
class Hypotheses {
 public:
  struct Found {
    Explanation explanation;
    Left left;
    bool of_others = false;
  };

  /// All must outlive it. `columns`: of the cell, all with an expected coefficient.
  Hypotheses(const RunContext& context, const Cell& cell, const Columns& columns, Earlier earlier, DesignCache& cache);
  /// The first that leaves nothing but noise of the result that the optimizers of `ranks` get.
  std::optional<Found> first_that_fits(const Problem& problem, const std::vector<int>& ranks);

 private:
  struct Hypothesis {
    std::vector<const Column*> columns;
    std::vector<Rational> coefficients;  // by column
    Design design;
    bool of_others = false, is_kept = false;
    std::map<const Basis*, SolvedDesign> solved;  // where it is kept
  };

  std::optional<Found> attempt(const Problem& problem, Hypothesis& hypothesis);
  std::optional<Hypothesis> of_pattern(const Pattern& pattern, bool of_others);
  static Hypothesis of_coefficients(std::vector<const Column*> columns, std::vector<Rational> coefficients);
  /// `own`: of these data-parallel coordinates alone; none: of all.
  std::vector<Hypothesis> usual(const std::vector<int>* own) const;
  std::vector<Hypothesis> left_by_earlier_steps();
  void prepare();

  const RunContext& context_;
  const Cell& cell_;
  std::vector<const Column*> own_;  // the cell's
  Earlier earlier_;
  DesignCache& cache_;
  bool is_prepared_ = false;
  std::vector<Hypothesis> others_, usual_;  // no result changes them
};

}  // namespace lockstep::live
