// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comparison.h"

namespace lockstep {

EverySize compare_every_size(const Scenario& before, const Scenario& after) {
  EverySize result;
  const SameProver prover(before, after);
  result.proof = prover.proof();
  if (result.proof.verdict != SameProof::Verdict::other) return result;
  int looked_at = 0;
  prover.each_suspect([&](const SameProof::Pair& pair) {
    const ScheduleComparison comparison = compare(pair.before, pair.after);
    if (comparison.apart.empty() && !comparison.gradients.empty()) {
      result.smallest = pair.sizes;
      result.difference = comparison.gradients.front();
    }
    return !result.smallest && ++looked_at < 40;
  });
  if (!result.smallest) {
    result.proof.verdict = SameProof::Verdict::undecided;
    result.proof.statement = "the same gradients at every small size that was tried";
  }
  return result;
}

}  // namespace lockstep
