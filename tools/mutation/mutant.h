// SPDX-License-Identifier: Apache-2.0
// Included at the top of every mutated source.
#pragma once

inline constexpr int most_mutants = 10000;
extern int chosen_mutant;
extern unsigned char reached_mutants[most_mutants];

/// Whether the mutant at this place is the chosen one.
inline bool mutant(int id) {
  __atomic_store_n(&reached_mutants[id], 1, __ATOMIC_RELAXED);
  return id == chosen_mutant;
}
