// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/numbers.h"

// Packs of elements: their values, and their patterns as docs/hash.md has them. A GPU does with the two elements of a
// word at once what would take longer for each by itself than the memory does.

namespace lockstep::kernels {

/// `width` elements that are read or written at once.
template <class Element, unsigned width>
struct alignas(width * sizeof(Element) > 16 ? 16 : width * sizeof(Element)) Together {
  Element at[width];
};

/// 32 bits of a pack; of 16-bit elements two.
template <class Stored, unsigned width>
LOCKSTEP_HOST_DEVICE std::uint32_t word_of(const Together<Stored, width>& pack, unsigned place) {
  std::uint32_t word = 0;
  memcpy(&word, reinterpret_cast<const unsigned char*>(&pack) + place * sizeof(word), sizeof(word));
  return word;
}

/// Writes a pack to several places, one call for each. Left to itself nvcc writes each element by itself there.
template <class Stored, unsigned width>
LOCKSTEP_HOST_DEVICE void write_pack(Stored* to, const Together<Stored, width>& pack) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(pack) == 16) {
    asm volatile("st.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(word_of(pack, 0)), "r"(word_of(pack, 1)), "r"(word_of(pack, 2)), "r"(word_of(pack, 3))
                 : "memory");
    return;
  }
#endif
  *reinterpret_cast<Together<Stored, width>*>(to) = pack;
}

template <class Stored, unsigned width>
inline constexpr bool in_pairs = sizeof(Stored) == 2 && width % 2 == 0;

/// The pattern of element `place` of a pack, as it is stored. The two elements of a word are taken out of it in one
/// instruction each.
template <class Stored, unsigned width>
LOCKSTEP_HOST_DEVICE auto stored_pattern(const Together<Stored, width>& pack, unsigned place) {
  if constexpr (in_pairs<Stored, width>) {
    const std::uint32_t word = word_of(pack, place / 2);
    return place % 2 == 0 ? word & 0xFFFFu : word >> 16;
  } else if constexpr (sizeof(Stored) == 8) {
    std::uint64_t bits = 0;
    memcpy(&bits, &pack.at[place], sizeof(bits));
    return bits;
  } else {
    std::uint32_t bits = 0;
    memcpy(&bits, &pack.at[place], sizeof(Stored));
    return bits;
  }
}

template <class Stored, unsigned width>
LOCKSTEP_HOST_DEVICE void load_values(const Together<Stored, width>& pack,
                                      typename Number<Stored>::Value (&values)[width]) {
  for (unsigned i = 0; i < width; ++i) {
    if constexpr (in_pairs<Stored, width> && Number<Stored>::domain == Domain::bfloat16) {
      const std::uint32_t word = word_of(pack, i / 2);
      values[i] = float_of(i % 2 == 0 ? word << 16 : word & 0xFFFF0000u);
    } else if constexpr (in_pairs<Stored, width>) {
      values[i] = Number<Stored>::load({static_cast<std::uint16_t>(stored_pattern(pack, i))});
    } else {
      values[i] = Number<Stored>::load(pack.at[i]);
    }
  }
}

/// `lost` is not 0 where a value is none of the type's.
template <class Stored, unsigned width>
LOCKSTEP_HOST_DEVICE void store_values(Together<Stored, width>& pack,
                                       const typename Number<Stored>::Value (&values)[width], std::uint32_t& lost) {
#if defined(__CUDA_ARCH__)
  if constexpr (in_pairs<Stored, width>) {
    LOCKSTEP_UNROLLED
    for (unsigned i = 0; i < width; i += 2) {
      std::uint32_t word = 0;
      if constexpr (Number<Stored>::domain == Domain::bfloat16) {
        word = __byte_perm(bits_of(values[i]), bits_of(values[i + 1]), 0x7632);
        lost |= (bits_of(values[i]) | bits_of(values[i + 1])) & 0xFFFFu;
      } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(values[i + 1]), "f"(values[i]));
        lost |= bits_of(from_float16(static_cast<std::uint16_t>(word))) ^ bits_of(values[i]);
        lost |= bits_of(from_float16(static_cast<std::uint16_t>(word >> 16))) ^ bits_of(values[i + 1]);
      }
      memcpy(&pack.at[i], &word, sizeof(word));
    }
    return;
  }
#endif
  bool any = false;
  for (unsigned i = 0; i < width; ++i) pack.at[i] = Number<Stored>::store(values[i], any);
  lost |= any ? 1u : 0u;
}

template <class Stored, unsigned width>
LOCKSTEP_HOST_DEVICE void make_each_canonical(Together<Stored, width>& pack) {
  if constexpr (in_pairs<Stored, width>) {
    for (unsigned i = 0; i < width; i += 2) {
      const std::uint32_t word = word_of(pack, i / 2);
      const std::uint32_t low = Number<Stored>::pattern({static_cast<std::uint16_t>(word)});
      const std::uint32_t high = Number<Stored>::pattern({static_cast<std::uint16_t>(word >> 16)});
      const std::uint32_t both = low | high << 16;
      memcpy(&pack.at[i], &both, sizeof(both));
    }
  } else {
    for (unsigned i = 0; i < width; ++i) {
      const auto pattern = Number<Stored>::pattern(pack.at[i]);
      memcpy(&pack.at[i], &pattern, sizeof(Stored));
    }
  }
}

/// Gives each element of a pack the pattern that is hashed. Says whether one may be no number; never that none is where
/// one is.
template <class Stored, unsigned width>
LOCKSTEP_HOST_DEVICE bool make_canonical(Together<Stored, width>& pack) {
#if defined(__CUDA_ARCH__)
  // A sum with +0 is the number itself, and +0 for -0. Times 0 all but infinity and what is no number add up to 0.
  if constexpr (in_pairs<Stored, width>) {
    constexpr bool is_bfloat16 = Number<Stored>::domain == Domain::bfloat16;
    std::uint32_t sum = 0;
    LOCKSTEP_UNROLLED
    for (unsigned i = 0; i < width / 2; ++i) {
      std::uint32_t word = word_of(pack, i);
      if constexpr (is_bfloat16) {
        asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(word) : "r"(0x3F803F80u), "r"(0u));
        asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(word), "r"(0u));
      } else {
        asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(word) : "r"(0x3C003C00u), "r"(0u));
        asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(word), "r"(0u));
      }
      memcpy(&pack.at[2 * i], &word, sizeof(word));
    }
    if (sum == 0) return false;
  } else if constexpr (std::is_same_v<Stored, float>) {
    float sum = 0;
    LOCKSTEP_UNROLLED
    for (unsigned i = 0; i < width; ++i) {
      pack.at[i] += 0.0f;
      sum += pack.at[i] * 0.0f;
    }
    if (sum == 0.0f) return false;
  }
#endif
  if constexpr (Number<Stored>::domain == Domain::prime61) return false;
  make_each_canonical(pack);
  return true;
}

/// How many elements of two packs are not equal, as numbers; `unusual` is set where one may be no number.
template <class Stored, unsigned width>
LOCKSTEP_HOST_DEVICE unsigned count_different(const Together<Stored, width>& one, const Together<Stored, width>& other,
                                              [[maybe_unused]] bool unusual) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(one) % sizeof(std::uint32_t) == 0) {
    std::uint32_t changes = 0;
    LOCKSTEP_UNROLLED
    for (unsigned i = 0; i < sizeof(one) / sizeof(changes); ++i) changes |= word_of(one, i) ^ word_of(other, i);
    if (changes == 0 && !unusual) return 0;
  }
#endif
  typename Number<Stored>::Value values[width], others[width];
  load_values(one, values);
  load_values(other, others);
  unsigned result = 0;
  for (unsigned i = 0; i < width; ++i) result += values[i] != others[i] ? 1u : 0u;
  return result;
}

}  // namespace lockstep::kernels
