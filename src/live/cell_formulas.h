// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/live/verify_cell.h"

namespace lockstep::live {

void set_wrong(PieceFinding& finding, Mistake kind, std::string what);
void set_undecided(PieceFinding& finding, std::string what);

/// What is expected of a piece in an optimizer step, and what is said of an explanation whose coefficients are exact.
class CellFormulas {
 public:
  /// `columns`: what belongs to the optimizer step, which may have come in steps before. The run and `formulas` must
  /// outlive it.
  CellFormulas(const CapturedRun& run, const RunFormulas& formulas, int step,
               const std::vector<const Column*>& columns);

  /// "" where it is not known.
  const std::string& expected() const { return expected_; }
  bool known() const { return known_; }

  /// Fills in the formula. `others`: terms besides those of the columns that entered.
  void write(PieceFinding& finding, const Explanation& found, const std::vector<Term>& others = {}) const;
  void write_coefficients(PieceFinding& finding, const Explanation& found) const;
  /// The kind of mistake of a formula that is wrong.
  Mistake kind(const Explanation& found) const { return kind_of(found, first_step_); }
  /// How a formula that is exact differs from what is expected, in a few words; "".
  std::string difference(const Explanation& found) const;
  /// Wrong, by a formula that is exact.
  void wrong_by(PieceFinding& finding, const Explanation& found) const;
  /// Where nobody said what the loss is: all contributions of all parameters should come with one coefficient.
  void without_loss(PieceFinding& finding, const Explanation& found) const;

 private:
  std::vector<Term> terms_of(const Explanation& found) const;

  const CapturedRun& run_;
  const RunFormulas& formulas_;
  int first_step_;  // what came before it is left over
  std::vector<Term> support_, expected_terms_;
  std::string expected_;
  bool known_ = true;
};

}  // namespace lockstep::live
