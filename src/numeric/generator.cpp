// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/generator.h"

#include <algorithm>

#include "src/numeric/mix.h"
#include "src/numeric/prime61.h"

namespace lockstep::numeric {

namespace {

std::uint64_t combine(std::uint64_t seed, std::uint64_t value) { return splitmix(seed, value); }

// 32-bit operations only, so that the loop vectorizes; `low` runs over one stretch of 2^32 indices, whose number is in
// `key`. `position` is index · constant + start, carried along: an addition where a multiplication would be.
LOCKSTEP_VECTORIZED
void fill(std::uint64_t key, int bits, std::uint32_t low, std::size_t count, std::int32_t* out) {
  constexpr std::uint32_t stride = 0x9E3779B1u;
  std::uint32_t position = low * stride + static_cast<std::uint32_t>(key);
  const auto twist = static_cast<std::uint32_t>(key >> 32);
  // bits = 0 must shift everything out, which one shift by 32 may not.
  const int shift = bits == 0 ? 31 : 32 - bits;
  const std::uint32_t kept = bits == 0 ? 0 : ~0u;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t x = position;
    position += stride;
    x ^= x >> 16;
    x = (x * 0x21F0AAADu) ^ twist;
    x ^= x >> 15;
    x *= 0x735A2D97u;
    x ^= x >> 15;
    const auto magnitude = static_cast<std::int32_t>(((x >> shift) & kept) + 1);
    const std::int32_t sign = -static_cast<std::int32_t>(x & 1);
    out[i] = (magnitude ^ sign) - sign;
  }
}

}  // namespace

std::uint64_t gradient_key(int logical, int source, int micro_batch, int site_use) {
  std::uint64_t key = combine(1, static_cast<std::uint64_t>(logical));
  key = combine(key, static_cast<std::uint64_t>(source));
  key = combine(key, static_cast<std::uint64_t>(micro_batch));
  return combine(key, static_cast<std::uint64_t>(site_use));
}

std::uint64_t leftover_key(int logical, std::string_view what, int rank) {
  std::uint64_t key = combine(2, static_cast<std::uint64_t>(logical));
  for (const char letter : what) key = combine(key, static_cast<unsigned char>(letter));
  return combine(key, static_cast<std::uint64_t>(rank + 1));
}

void generate(std::uint64_t key, int bits, std::uint64_t first, std::size_t count, std::int32_t* out) {
  while (count > 0) {
    const std::uint64_t stretch = first >> 32;
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(count, ((stretch + 1) << 32) - first));
    fill(combine(key, stretch), bits, static_cast<std::uint32_t>(first), part, out);
    first += part;
    out += part;
    count -= part;
  }
}

LOCKSTEP_VECTORIZED
void generate_residues(std::uint64_t key, std::uint64_t first, std::size_t count, std::uint64_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t residue = splitmix(key, first + i) >> 3;
    out[i] = residue == 0 || residue == prime61 ? 1 : residue;
  }
}

}  // namespace lockstep::numeric
