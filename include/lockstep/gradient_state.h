// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/intervals.h"
#include "lockstep/rational.h"
#include "lockstep/timeline.h"

namespace lockstep {

/// What a `clip` multiplies by, an unknown number: ranks whose norms count the same multiply by the same.
struct ClipFactor {
  int rank = -1;   ///< -1: the factor of the right norm; else that of another, and the first rank that clipped by it
  int number = 0;  ///< the optimizer step of the right norm; of other norms: which of those of that rank, from 0
  friend auto operator<=>(const ClipFactor&, const ClipFactor&) = default;
};

/// One term of a form, in words that a report can print.
struct Term {
  int rank = -1;                  ///< the source rank; -1 for a leftover that is equal on all ranks
  int micro_batch = -1;           ///< numbered on through optimizer steps; -1 for a leftover
  int site_use = 0;               ///< index into Logical::uses of `logical`
  std::string leftover;           ///< its `what`; empty for a gradient
  bool foreign = false;           ///< belongs to another element or parameter
  int logical = -1;               ///< the logical parameter that it contributes to
  int piece = -1;                 ///< foreign: the piece whose element it is
  std::int64_t offset = 0;        ///< foreign: its local element is this one's plus `offset`
  Rational coefficient;           ///< relative to what `backward` added
  std::vector<ClipFactor> clips;  ///< that it was multiplied by besides, sorted
};

/// Verdict of an engine on a run of elements.
struct PieceResult {
  Interval elements;  ///< local
  bool right = true;
  int form = 0;                   ///< symbolic: for terms_of(); equal numbers are equal values
  int reference = 0;              ///< symbolic: what it should be
  std::optional<Rational> ratio;  ///< got/expected where it is one number
  bool right_unclipped = right;   ///< were every clipping factor 1, as it is for engines that compute with numbers
};

/// What one rank hands to its optimizer for one of its buffers.
struct BufferResult {
  int rank = 0;
  int buffer = 0;  ///< index into its LocalModel
  Intervals owned;
  std::vector<PieceResult> pieces;  ///< cover `owned`, neighbours with equal forms merged
};

/// Knows what the form numbers in an engine's findings stand for.
class FormReader {
 public:
  virtual ~FormReader() = default;
  /// A form as terms, seen from buffer `buffer` of `rank`; ordered by rank, micro-batch, use; gradients before
  /// leftovers, own elements before foreign ones. Coefficients are relative to what `backward` added.
  virtual std::vector<Term> terms(int form, int rank, int buffer) const = 0;
  /// Form of the reference for elements of this piece in an optimizer step.
  virtual int reference(int logical, int piece, int optimizer_step) = 0;
};

}  // namespace lockstep
