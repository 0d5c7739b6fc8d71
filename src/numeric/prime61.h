// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep::numeric {

/// Arithmetic modulo the prime 2^61 - 1; residues are in [0, prime61).
inline constexpr std::uint64_t prime61 = (std::uint64_t{1} << 61) - 1;

constexpr std::uint64_t add61(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t sum = a + b;
  return sum >= prime61 ? sum - prime61 : sum;
}

constexpr std::uint64_t multiply61(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return add61(static_cast<std::uint64_t>(product) & prime61, static_cast<std::uint64_t>(product >> 61));
}

/// `a` must not be 0.
constexpr std::uint64_t inverse61(std::uint64_t a) {
  std::uint64_t result = 1;
  for (std::uint64_t exponent = prime61 - 2; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = multiply61(result, a);
    a = multiply61(a, a);
  }
  return result;
}

}  // namespace lockstep::numeric
