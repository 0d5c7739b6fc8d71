// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/launch.h"

// The arithmetic of the replay for one element, for GPUs. It is that of src/numeric, which has it for vectors of a
// processor; tests/kernels/arithmetic_test.cpp holds each function against it.

namespace lockstep::kernels {

/// The output function of SplitMix64.
LOCKSTEP_HOST_DEVICE constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

LOCKSTEP_HOST_DEVICE constexpr std::uint64_t splitmix(std::uint64_t seed, std::uint64_t n) {
  return mix64(seed + (n + 1) * 0x9E3779B97F4A7C15u);
}

/// Modulo the prime 2^61 - 1; residues are below it.
inline constexpr std::uint64_t field_prime = (std::uint64_t{1} << 61) - 1;

LOCKSTEP_HOST_DEVICE constexpr std::uint64_t add61(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t sum = a + b;
  return sum >= field_prime ? sum - field_prime : sum;
}

LOCKSTEP_HOST_DEVICE inline std::uint64_t multiply61(std::uint64_t a, std::uint64_t b) {
#if defined(__CUDA_ARCH__)
  const std::uint64_t low = a * b, high = __umul64hi(a, b);
#else
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  const auto low = static_cast<std::uint64_t>(product), high = static_cast<std::uint64_t>(product >> 64);
#endif
  return add61(low & field_prime, (high << 3) | (low >> 61));
}

/// The generator's key for one stretch of 2^32 global indices.
LOCKSTEP_HOST_DEVICE constexpr std::uint64_t stretch_key(std::uint64_t key, std::uint64_t stretch) {
  return splitmix(key, stretch);
}

/// The generator's draw for an element: `key` is that of its stretch, `low` the low half of its global index.
LOCKSTEP_HOST_DEVICE inline std::uint32_t generated_draw(std::uint64_t key, std::uint32_t low) {
  std::uint32_t x = low * 0x9E3779B1u + static_cast<std::uint32_t>(key);
  x ^= x >> 16;
  x *= 0x21F0AAADu;
  // x ^= high; x ^= x >> 15, with what the key alone has part in made once
  const auto high = static_cast<std::uint32_t>(key >> 32);
  x ^= (x >> 15) ^ (high ^ high >> 15);
  x *= 0x735A2D97u;
  return x ^ x >> 15;
}
/// The size of the number that a draw stands for; it is negative where the draw is odd.
LOCKSTEP_HOST_DEVICE inline std::int32_t generated_size(std::uint32_t draw, int bits) {
  return static_cast<std::int32_t>(std::uint64_t{draw} >> (32 - bits)) + 1;
}
LOCKSTEP_HOST_DEVICE inline std::int32_t generated(std::uint64_t key, int bits, std::uint32_t low) {
  const std::uint32_t draw = generated_draw(key, low);
  const std::int32_t size = generated_size(draw, bits);
  return (draw & 1u) != 0 ? -size : size;
}

/// The generator's number for an element as a residue, from the key itself and the whole global index.
LOCKSTEP_HOST_DEVICE inline std::uint64_t generated_residue(std::uint64_t key, std::uint64_t index) {
  const std::uint64_t residue = splitmix(key, index) >> 3;
  return residue == 0 || residue == field_prime ? 1 : residue;
}

LOCKSTEP_HOST_DEVICE inline std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
LOCKSTEP_HOST_DEVICE inline std::uint64_t bits_of(double value) {
  std::uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
LOCKSTEP_HOST_DEVICE inline float float_of(std::uint32_t bits) {
  float value = 0;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/// The generator's number as a float, of which the sign is one bit. With at most 23 bits its size needs no conversion:
/// with these bits of the draw behind the pattern of 2^23, a float is by them above it.
template <int most_bits>
LOCKSTEP_HOST_DEVICE float generated_float(std::uint64_t key, int bits, std::uint32_t low) {
  const std::uint32_t draw = generated_draw(key, low);
  float size = 0;
  if constexpr (most_bits <= 23) {
    const std::uint64_t above = std::uint64_t{0x4B000000u >> bits} << 32;
    size = float_of(static_cast<std::uint32_t>((above | draw) >> (32 - bits))) - 8388607.0f;
  } else {
    size = static_cast<float>(generated_size(draw, bits));
  }
  return float_of(bits_of(size) ^ draw << 31);
}

/// The inverse of a power of two whose inverse is a number too, 0 of others: to multiply by it is to divide, and a GPU
/// divides in many steps.
LOCKSTEP_HOST_DEVICE inline float exact_inverse(float value) {
  const std::uint32_t bits = bits_of(value), exponent = bits >> 23;
  return (bits & 0x7FFFFFu) == 0 && exponent > 0 && exponent < 254 ? float_of((254u << 23) - bits) : 0;
}
LOCKSTEP_HOST_DEVICE inline double exact_inverse(double value) {
  const std::uint64_t bits = bits_of(value), exponent = bits >> 52;
  if ((bits & 0xFFFFFFFFFFFFFu) != 0 || exponent == 0 || exponent >= 2046) return 0;
  const std::uint64_t of_inverse = (std::uint64_t{2046} << 52) - bits;
  double inverse = 0;
  memcpy(&inverse, &of_inverse, sizeof(inverse));
  return inverse;
}

/// The pattern of a bfloat16; `lost` is set where the value is none.
LOCKSTEP_HOST_DEVICE inline std::uint16_t to_bfloat16(float value, bool& lost) {
  const std::uint32_t bits = bits_of(value);
  lost = lost || (bits & 0xFFFFu) != 0;
  return static_cast<std::uint16_t>(bits >> 16);
}

/// The value of a pattern of IEEE float16. A GPU has an instruction for it.
LOCKSTEP_HOST_DEVICE inline float from_float16(std::uint16_t pattern) {
#if defined(__CUDA_ARCH__)
  float value = 0;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(pattern));
  return value;
#else
  const std::uint32_t sign = (pattern & 0x8000u) << 16, exponent = pattern >> 10 & 31u, digits = pattern & 0x3FFu;
  if (exponent == 0) {
    const float size = static_cast<float>(digits) * (1.0f / 16777216.0f);
    return sign != 0 ? -size : size;
  }
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + (127u - 15u);
  return float_of(sign | wide << 23 | digits << 13);
#endif
}

/// The pattern of an IEEE float16, of finite values; `lost` is set where the value is none.
LOCKSTEP_HOST_DEVICE inline std::uint16_t to_float16(float value, bool& lost) {
#if defined(__CUDA_ARCH__)
  // To the nearest, or to infinity: what is not the value itself was lost.
  std::uint16_t pattern = 0;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(pattern) : "f"(value));
  lost = lost || from_float16(pattern) != value;
  return pattern;
#else
  const std::uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
  const float magnitude = float_of(size);
  if (size < 0x38800000u) {  // below 2^-14 it counts in 2^-24
    const float last_bits = magnitude * 16777216.0f;
    const auto whole = static_cast<std::uint32_t>(last_bits);
    lost = lost || static_cast<float>(whole) != last_bits;
    return static_cast<std::uint16_t>(sign | whole);
  }
  lost = lost || (bits & 0x1FFFu) != 0 || !(magnitude < 65536.0f);
  return static_cast<std::uint16_t>(sign | ((size >> 13) - ((127u - 15u) << 10)));
#endif
}

/// docs/hash.md: -0 is +0, every NaN has all bits set. `infinity` is the pattern of infinity.
template <class Bits>
LOCKSTEP_HOST_DEVICE constexpr Bits canonical(Bits bits, Bits infinity) {
  constexpr Bits minus_zero = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  if (bits == minus_zero) return 0;
  return (bits & static_cast<Bits>(minus_zero - 1)) > infinity ? static_cast<Bits>(~Bits{0}) : bits;
}

/// docs/hash.md: domains, and elements of a block.
enum class Domain : std::uint64_t { float32 = 1, float64 = 2, bfloat16 = 3, prime61 = 4, float16 = 5 };
inline constexpr unsigned hash_block = 512;

LOCKSTEP_HOST_DEVICE inline std::uint64_t product(std::uint32_t bits, std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint64_t>(bits ^ low) * high;
}
LOCKSTEP_HOST_DEVICE inline std::uint64_t product(std::uint64_t bits, std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(bits) ^ low) *
         (static_cast<std::uint32_t>(bits >> 32) ^ high);
}

LOCKSTEP_HOST_DEVICE inline std::uint64_t block_multiplier(Domain domain, unsigned lane, std::uint64_t block) {
  const std::uint64_t seed = splitmix(0, 2 * hash_block + 2 * static_cast<std::uint64_t>(domain) + lane);
  return splitmix(seed, block) | 1;
}

}  // namespace lockstep::kernels
