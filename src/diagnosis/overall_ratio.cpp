// SPDX-License-Identifier: Apache-2.0
#include "lockstep/check.h"
#include "lockstep/parametric.h"
#include "lockstep/rational.h"
#include "lockstep/symbolic.h"

namespace lockstep {

std::optional<Rational> overall_ratio(const CheckResult& result) {
  if (result.verdict != Verdict::match && result.verdict != Verdict::mismatch) return std::nullopt;
  const SymbolicResult* exact = exact_of(result);
  if (exact == nullptr || !exact->unowned.empty()) return std::nullopt;
  if (const auto* sample = sample_of(result); sample != nullptr && !sample->not_shown.empty()) return std::nullopt;
  std::optional<Rational> ratio;
  for (const BufferResult& buffer : exact->buffers) {
    for (const PieceResult& piece : buffer.pieces) {
      if (piece.right) continue;
      if (!piece.ratio || (ratio && *ratio != *piece.ratio)) return std::nullopt;
      ratio = piece.ratio;
    }
  }
  return ratio.value_or(Rational(1));
}

}  // namespace lockstep
