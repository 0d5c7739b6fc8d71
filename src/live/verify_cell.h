// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "src/live/formula.h"

namespace lockstep::live {

/// Everything that is known of one piece in one optimizer step.
struct Cell {
  int step = 0, parameter = 0, piece = 0;
  std::vector<const SketchedTensor*> contributions, results;  ///< by rank
  Dtype coarsest = Dtype::float64;                            ///< of collectives with gradients in this step
  std::optional<Dtype> own_coarsest;                          ///< of those that are known to carry this parameter's
};

/// The coefficients of a formula that was recovered where all contributions could be told apart: by how many optimizer
/// steps a contribution is older than the result, by rank and by micro-batch.
using Pattern = std::map<std::tuple<int, int, int>, Rational>;

/// What it takes to verify one besides the cell.
struct RunContext {
  const CapturedRun& run;
  SketchFiles& files;
  const RunFormulas& formulas;
  const Expected& expected;
  /// The columns of this cell's piece in the optimizer step that is so many before; null where the run has no such
  /// step.
  std::function<std::shared_ptr<const Columns>(const Cell& cell, int back)> before;
  /// Formulas of other parameters, the most frequent first, tried where contributions, or those of earlier optimizer
  /// steps, cannot be told apart.
  const std::vector<Pattern>* patterns = nullptr;
};

/// What was found, with what the summary needs and the report does not.
struct PieceFinding {
  VerifiedPiece piece;
  std::string summary;  ///< what is wrong, in words that are the same for the same mistake; "" where right
  Mistake kind = Mistake::wrong_factor;  ///< where wrong
  bool told_apart = false;               ///< the formula is certain
  bool open = false;                     ///< another formula may explain it better: patterns may help
  std::optional<Rational> uniform;       ///< loss not known: the one coefficient of all contributions
  std::set<int> came, hidden;            ///< where right: as in Explanation
};

/// Verifies every distinct result of a cell, and what has no result.
std::vector<PieceFinding> verify_cell(const RunContext& context, const Cell& cell);

/// The coefficients of the contributions, where all of them are certain.
std::optional<Pattern> pattern_of(const PieceFinding& finding);

}  // namespace lockstep::live
