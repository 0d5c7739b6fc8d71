// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "lockstep/mistake.h"
#include "src/live/designs.h"

namespace lockstep::live {

/// How one column entered.
struct ColumnCoefficient {
  const Column* column = nullptr;
  double value = 0, error = 0;
  std::optional<Rational> exact;
};

/// What a result is made of.
struct Explanation {
  std::vector<ColumnCoefficient> entered;  ///< the columns of this optimizer step, then earlier ones that are in it
  bool explained = false;                  ///< nothing is left but noise
  /// All columns were told apart. Else this is the formula with the fewest different coefficients that fits, and others
  /// fit as well.
  bool told_apart = false;
  /// All columns enter with one factor times what is expected, or, where that is not known, with one coefficient.
  bool uniform = false;
  bool of_expected = false;  ///< `uniform`, and it is a factor on what is expected
  double factor = 0;         ///< only where `uniform`: that one
  std::optional<Rational> exact_factor;
  bool right = false;              ///< uniform, expected, and the factor is 1 within noise
  bool stale = false;              ///< columns of earlier optimizer steps are in it
  double residual = 0, noise = 0;  ///< as in Fit
  /// Only where `right`: ranks of which contributions other than zeros came, and of these those without which the
  /// result would be right as well, since rounding hides what they yield beside the others.
  std::set<int> came, hidden;

  bool exact() const;
};

/// So many optimizer steps before are looked at for gradients that nobody zeroed.
inline constexpr int most_back = 8;

/// Columns of the optimizer step that is so many steps before; nothing where the run has no such step.
using Earlier = std::function<std::optional<std::vector<const Column*>>(int back)>;

/// Explains the result of `problem` by its columns, and where these do not suffice by those of earlier optimizer steps.
/// Of several explanations that fit equally well the one with the fewest different coefficients is taken, and what is
/// expected before anything else. `cache`: shared by the results of a piece.
Explanation explain(const Problem& problem, const Earlier& earlier, DesignCache& cache);

/// The kind of mistake that the coefficients of an explanation show, as kind_of_content() has it of a scenario. What
/// came in optimizer steps before `first_step` is left over.
Mistake kind_of(const Explanation& found, int first_step);

/// What is left of a result, and how much of that rounding may leave; as in Fit.
struct Left {
  double residual = 0, noise = 0;
};

/// Coefficients that somebody else has for the columns of a problem, as a design.
Design design_of(const std::vector<Rational>& coefficients);

/// Nothing unless the design of such coefficients, solved over `basis`, leaves nothing of the result but noise.
std::optional<Left> fits(const Problem& problem, const Basis& basis, const Design& design, const SolvedDesign& solved);

}  // namespace lockstep::live
