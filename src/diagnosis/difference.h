// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "lockstep/check.h"
#include "lockstep/gradient_state.h"
#include "lockstep/rational.h"

namespace lockstep::diagnosis {

/// How the content of one wrong piece, or of what an optimizer of a captured run gets, differs from the reference,
/// term by term.
struct Difference {
  bool leftover = false;  ///< something that is no gradient, or is one of another optimizer step
  bool foreign = false;   ///< contributions of another element or parameter
  bool left_out = false;  ///< contributions that the loss leaves out: their weight is 0
  bool clips = false;     ///< contributions of the reference are clipped by other factors, or not
  bool missing = false;   ///< contributions of the reference are not there
  /// got/expected of the contributions that are there, smallest and largest; nothing where none is.
  std::optional<Rational> least, most;

  /// One more contribution that is there.
  void take(const Rational& ratio);
};

/// With 1 for every clipping factor: what is left of terms that differ in these alone is one term. In their order.
std::vector<Term> apart_from_clips(const std::vector<Term>& terms);

/// Of one wrong piece of exact_of(result).
Difference difference_of(const CheckResult& result, int rank, int buffer, const PieceResult& piece);

/// One for each distinct wrong content; of a result of the symbolic engine.
std::vector<Difference> differences(const CheckResult& result);

}  // namespace lockstep::diagnosis
