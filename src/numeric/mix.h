// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep::numeric {

/// Bijective mix of 64 bits: the output function of SplitMix64.
constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Output number `n`, from 0, of SplitMix64 seeded with `seed`.
constexpr std::uint64_t splitmix(std::uint64_t seed, std::uint64_t n) {
  return mix64(seed + (n + 1) * 0x9E3779B97F4A7C15u);
}

}  // namespace lockstep::numeric
