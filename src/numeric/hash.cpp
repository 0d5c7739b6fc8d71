// SPDX-License-Identifier: Apache-2.0
#include "lockstep/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "src/numeric/mix.h"

// docs/hash.md defines what is computed here. One 32 × 32 → 64-bit multiplication per element and
// lane: everything that depends on the index alone is either a table of one block or done once for
// each block.

namespace lockstep {

namespace {

enum class Domain : std::uint64_t { float32 = 1, float64 = 2, bfloat16 = 3, prime61 = 4, float16 = 5 };

constexpr std::size_t block = 512;

// By lane: what is mixed into an element's bits, and the multiplier, by its place in the block.
struct Keys {
  std::array<std::array<std::uint32_t, block>, 2> low, high;
};

constexpr Keys make_keys() {
  Keys keys{};
  for (std::size_t lane = 0; lane < 2; ++lane) {
    for (std::size_t j = 0; j < block; ++j) {
      const std::uint64_t key = numeric::splitmix(0, block * lane + j);
      keys.low[lane][j] = static_cast<std::uint32_t>(key);
      keys.high[lane][j] = static_cast<std::uint32_t>(key >> 32);
    }
  }
  return keys;
}

alignas(64) constexpr Keys keys = make_keys();

std::uint64_t multiplier(Domain domain, std::size_t lane, std::uint64_t block_number) {
  const std::uint64_t seed = numeric::splitmix(0, 2 * block + 2 * static_cast<std::uint64_t>(domain) + lane);
  return numeric::splitmix(seed, block_number) | 1;
}

template <Domain domain>
inline std::uint32_t canonical(float value) {
  const auto bits = std::bit_cast<std::int32_t>(value);
  const std::int32_t nan = (bits & 0x7FFFFFFF) > 0x7F800000 ? -1 : 0;
  const std::int32_t zero = bits == static_cast<std::int32_t>(0x80000000u) ? -1 : 0;
  return static_cast<std::uint32_t>((bits & ~zero) | nan);
}

template <Domain domain>
inline std::uint64_t canonical(double value) {
  const auto bits = std::bit_cast<std::int64_t>(value);
  const std::int64_t nan = (bits & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000 ? -1 : 0;
  const std::int64_t zero = bits == static_cast<std::int64_t>(0x8000000000000000u) ? -1 : 0;
  return static_cast<std::uint64_t>((bits & ~zero) | nan);
}

template <Domain domain>
inline std::uint32_t canonical(std::uint16_t bits) {
  constexpr std::uint32_t infinity = domain == Domain::bfloat16 ? 0x7F80 : 0x7C00;
  const std::uint32_t wide = bits;
  const std::uint32_t nan = (wide & 0x7FFFu) > infinity ? 0xFFFFu : 0;
  return wide == 0x8000u ? 0 : (wide | nan);
}

template <Domain domain>
inline std::uint64_t canonical(std::uint64_t residue) {
  return residue;
}

inline std::uint64_t product(std::uint32_t bits, std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint64_t>(bits ^ low) * high;
}

inline std::uint64_t product(std::uint64_t bits, std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(bits) ^ low) *
         (static_cast<std::uint32_t>(bits >> 32) ^ high);
}

// Sums over part of a block: elements at places `place`, `place + 1`, … of it.
template <Domain domain, class Element>
inline GradientHash sum_block(const Element* values, std::size_t count, std::size_t place) {
  const std::uint32_t* low0 = keys.low[0].data() + place;
  const std::uint32_t* low1 = keys.low[1].data() + place;
  const std::uint32_t* high0 = keys.high[0].data() + place;
  const std::uint32_t* high1 = keys.high[1].data() + place;
  std::uint64_t sum0 = 0, sum1 = 0;
  for (std::size_t j = 0; j < count; ++j) {
    const auto bits = canonical<domain>(values[j]);
    sum0 += product(bits, low0[j], high0[j]);
    sum1 += product(bits, low1[j], high1[j]);
  }
  return {{sum0, sum1}};
}

template <Domain domain, class Element>
inline GradientHash hash_all(const Element* values, std::size_t count, std::uint64_t first) {
  GradientHash hash;
  while (count > 0) {
    const auto place = static_cast<std::size_t>(first % block);
    const std::size_t part = std::min(count, block - place);
    const GradientHash sums = sum_block<domain>(values, part, place);
    for (std::size_t lane = 0; lane < 2; ++lane)
      hash.lanes[lane] += multiplier(domain, lane, first / block) * sums.lanes[lane];
    values += part;
    count -= part;
    first += part;
  }
  return hash;
}

}  // namespace

LOCKSTEP_VECTORIZED
GradientHash hash_elements(const float* values, std::size_t count, std::uint64_t first) {
  return hash_all<Domain::float32>(values, count, first);
}

LOCKSTEP_VECTORIZED
GradientHash hash_elements(const double* values, std::size_t count, std::uint64_t first) {
  return hash_all<Domain::float64>(values, count, first);
}

LOCKSTEP_VECTORIZED
GradientHash hash_bfloat16(const std::uint16_t* values, std::size_t count, std::uint64_t first) {
  return hash_all<Domain::bfloat16>(values, count, first);
}

LOCKSTEP_VECTORIZED
GradientHash hash_float16(const std::uint16_t* values, std::size_t count, std::uint64_t first) {
  return hash_all<Domain::float16>(values, count, first);
}

LOCKSTEP_VECTORIZED
GradientHash hash_residues(const std::uint64_t* values, std::size_t count, std::uint64_t first) {
  return hash_all<Domain::prime61>(values, count, first);
}

std::string GradientHash::to_string() const { return fmt::format("{:016x}{:016x}", lanes[0], lanes[1]); }

}  // namespace lockstep
