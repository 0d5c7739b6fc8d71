// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/symbolic.h"
#include "src/live/explain.h"

namespace lockstep::live {

/// Writes formulas over a run's contributions as `check` writes them (docs/formulas.md): the run as a schedule of one
/// parameter that every rank holds. Concurrent use is safe.
class RunFormulas {
 public:
  explicit RunFormulas(const CapturedRun& run);

  /// Whether the mesh's axes are lockstep's, so that sums over axes carry its names; else all ranks count as one, dp.
  bool knows_axes() const { return knows_axes_; }

  /// The term of a column with a coefficient.
  Term term(const Column& column, const Rational& coefficient) const;
  /// `support`: terms of all columns of the optimizer step.
  std::string print(const std::vector<Term>& terms, const std::vector<Term>& support) const;
  /// Numbers in the place of fractions: "0.3331*g0 + 0.25*g1".
  std::string print_rounded(const std::vector<ColumnCoefficient>& entered, const std::vector<Term>& support) const;
  std::string difference(const std::vector<Term>& got, const std::vector<Term>& expected) const;

 private:
  std::vector<int> steps_;  // captured, ascending
  bool knows_axes_ = false;
  std::unique_ptr<Schedule> schedule_;
};

}  // namespace lockstep::live
