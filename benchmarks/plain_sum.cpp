// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/plain_sum.h"

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define LOCKSTEP_WIDEST __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define LOCKSTEP_WIDEST
#endif

namespace lockstep::bench {

LOCKSTEP_WIDEST std::uint64_t plain_sum(const std::uint64_t* words, std::size_t count) {
  std::uint64_t sums[16] = {};
  for (std::size_t i = 0; i + 16 <= count; i += 16) {
    for (std::size_t k = 0; k < 16; ++k) sums[k] += words[i + k];
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t part : sums) sum += part;
  return sum;
}

LOCKSTEP_WIDEST std::uint64_t prefetching_sum(const std::uint64_t* words, std::size_t count) {
  constexpr std::size_t ahead = 768;  // words
  std::uint64_t sums[16] = {};
  for (std::size_t i = 0; i + 16 <= count; i += 16) {
    const auto* line = reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(words + i) + 8 * ahead);
    __builtin_prefetch(line);
    __builtin_prefetch(line + 64);
    for (std::size_t k = 0; k < 16; ++k) sums[k] += words[i + k];
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t part : sums) sum += part;
  return sum;
}

}  // namespace lockstep::bench
