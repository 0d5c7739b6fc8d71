// SPDX-License-Identifier: Apache-2.0
// Linked into every mutated program. LOCKSTEP_MUTANT chooses the mutant; LOCKSTEP_MUTANT_REACHED names a file to which
// the mutants are added whose place was reached; LOCKSTEP_MUTANT_MEMORY is how many bytes of memory the program gets.
#include "tools/mutation/mutant.h"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

int chosen_mutant = 0;
unsigned char reached_mutants[most_mutants];

namespace {

// Before every other initialization: tests register themselves in theirs.
__attribute__((constructor(101))) void choose() {
  if (const char* text = std::getenv("LOCKSTEP_MUTANT")) chosen_mutant = std::atoi(text);
  if (const char* text = std::getenv("LOCKSTEP_MUTANT_MEMORY")) {
    const rlim_t most = std::strtoull(text, nullptr, 10);
    const rlimit memory{most, most};
    setrlimit(RLIMIT_AS, &memory);
  }
}

__attribute__((destructor(101))) void report() {
  const char* name = std::getenv("LOCKSTEP_MUTANT_REACHED");
  if (!name) return;
  if (std::FILE* file = std::fopen(name, "a")) {
    for (int id = 1; id < most_mutants; ++id) {
      if (reached_mutants[id]) std::fprintf(file, "%d\n", id);
    }
    std::fclose(file);
  }
}

}  // namespace
