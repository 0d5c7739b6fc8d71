// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mutation.h"
#include "src/diagnosis/mutation_flags.h"

namespace lockstep::diagnosis {

std::vector<std::string_view> mutant_kinds() {
  std::vector<std::string_view> kinds;
  for (int kind = 0; kind < candidate_kind_count; ++kind) kinds.push_back(name_of(static_cast<Candidate::Kind>(kind)));
  kinds.push_back(flag_edits);
  return kinds;
}

void MutantCounts::add(const Mutant& mutant) {
  ++mutants;
  equivalent += mutant.fate == Mutant::Fate::equivalent ? 1 : 0;
  unproved += mutant.fate == Mutant::Fate::unproved ? 1 : 0;
  if (mutant.fate != Mutant::Fate::killed) return;
  ++killed;
  symbolic += mutant.symbolic ? 1 : 0;
  parametric += mutant.parametric ? 1 : 0;
  elsewhere += mutant.sizes.empty() ? 0 : 1;
  values += mutant.verdict == Verdict::mismatch ? 1 : 0;
  replicas += mutant.replicas_differ ? 1 : 0;
  tolerance += mutant.beyond_tolerance ? 1 : 0;
}

void MutantCounts::add(const MutantCounts& other) {
  mutants += other.mutants;
  killed += other.killed;
  symbolic += other.symbolic;
  parametric += other.parametric;
  elsewhere += other.elsewhere;
  equivalent += other.equivalent;
  unproved += other.unproved;
  values += other.values;
  replicas += other.replicas;
  tolerance += other.tolerance;
}

MutantCounts counts_of(const std::vector<Mutant>& mutants) {
  MutantCounts counts;
  for (const Mutant& mutant : mutants) counts.add(mutant);
  return counts;
}

}  // namespace lockstep::diagnosis
