// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/elements.h"

// docs/sketch.md: signed sums over elements, exact, in digits of 32 bits.

namespace lockstep::kernels {

/// The digits that elements of a type can reach: digit d stands for 2^(32 * (first + d - 34)).
struct DigitWindow {
  unsigned first = 0, count = 0;
};
template <class Stored>
inline constexpr DigitWindow digit_window{29, 9};  // float32 and bfloat16, 2^-149 to 2^128
template <>
inline constexpr DigitWindow digit_window<Float16>{33, 2};  // 2^-24 to 2^16
template <>
inline constexpr DigitWindow digit_window<double>{0, 66};  // 2^-1074 to 2^1024

/// significand * 2^(position - 1088)
struct Significand {
  std::uint64_t significand = 0;
  unsigned position = 0;
  bool negative = false, finite = true;
};

LOCKSTEP_HOST_DEVICE inline Significand significand_of(double value) {
  const std::uint64_t bits = bits_of(value), fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const auto exponent = static_cast<unsigned>(bits >> 52 & 0x7FFu);
  return {exponent == 0 ? fraction : fraction | std::uint64_t{1} << 52, (exponent == 0 ? 1 : exponent) + 1088 - 1075,
          bits >> 63 != 0, exponent != 0x7FFu};
}
LOCKSTEP_HOST_DEVICE inline Significand significand_of(float value) {
  const std::uint32_t bits = bits_of(value), fraction = bits & 0x7FFFFFu;
  const unsigned exponent = bits >> 23 & 0xFFu;
  return {exponent == 0 ? fraction : fraction | 1u << 23, (exponent == 0 ? 1 : exponent) + 1088 - 150, bits >> 31 != 0,
          exponent != 0xFFu};
}

/// Adds `count` elements of a tensor to `digits`, by sum and digit of the window, and counts those that are infinite or
/// no numbers. With `in_block` each block adds up in its own memory first, of bytes() bytes.
template <class Stored>
struct SketchKernel {
  static constexpr int phases = 3;
  static constexpr DigitWindow window = digit_window<Stored>;
  struct Local {};

  const Stored* data = nullptr;  ///< aligned to 16 bytes
  std::uint64_t count = 0;
  std::uint64_t first = 0;  ///< global index
  std::uint64_t key = 0;
  unsigned sums = 256;
  std::uint64_t* digits = nullptr;
  std::uint64_t* non_finite = nullptr;
  bool in_block = false;

  static constexpr std::size_t bytes(unsigned sums) { return std::size_t{sums} * window.count * sizeof(std::uint64_t); }

  template <int phase>
  LOCKSTEP_HOST_DEVICE void run(const GridPlace& place, unsigned char* memory, Local&) const {
    auto* const own = reinterpret_cast<std::uint64_t*>(memory);
    if constexpr (phase == 1) {
      add_up(place, in_block ? own : digits);
    } else if (in_block) {
      for (unsigned i = place.thread; i < sums * window.count; i += place.threads) {
        if constexpr (phase == 0) {
          own[i] = 0;
        } else if (own[i] != 0) {
          add_atomically(digits + i, own[i]);
        }
      }
    }
  }

 private:
  static constexpr unsigned width = pack<Stored>;

  LOCKSTEP_HOST_DEVICE void add_up(const GridPlace& place, std::uint64_t* to) const {
    for (std::uint64_t at = place.index(); at * width < count; at += place.count()) {
      const std::uint64_t begin = at * width;
      Together<Stored, width> stored{};
      if (begin + width <= count) {
        stored = *reinterpret_cast<const Together<Stored, width>*>(data + begin);
      } else {
        for (unsigned i = 0; begin + i < count; ++i) stored.at[i] = data[begin + i];
      }
      std::uint64_t block = 0, where = 0, signs = 0;
      for (unsigned i = 0; i < width && begin + i < count; ++i) {
        const std::uint64_t global = first + begin + i;
        if (i == 0 || global / 64 != block) {
          block = global / 64;
          where = splitmix(key, 2 * block);
          signs = splitmix(key, 2 * block + 1);
        }
        const std::uint64_t sum = 64 * ((where >> 32) * (sums / 64) >> 32) + (where + global) % 64;
        add_one(Number<Stored>::load(stored.at[i]), (signs >> global % 64 & 1) != 0, to + sum * window.count);
      }
    }
  }

  template <class Value>
  LOCKSTEP_HOST_DEVICE void add_one(Value value, bool opposite, std::uint64_t* sum) const {
    const Significand split = significand_of(value);
    if (!split.finite) return add_atomically(non_finite, 1);
    const unsigned shift = split.position % 32;
    const std::uint64_t low = (split.significand & 0xFFFFFFFFu) << shift, high = (split.significand >> 32) << shift;
    const std::uint64_t parts[] = {low & 0xFFFFFFFFu, (low >> 32) + (high & 0xFFFFFFFFu), high >> 32};
    // What a type cannot reach is 0.
    for (unsigned i = 0; i < 3; ++i) {
      if (parts[i] == 0) continue;
      add_atomically(sum + split.position / 32 - window.first + i,
                     split.negative != opposite ? std::uint64_t{0} - parts[i] : parts[i]);
    }
  }
};

}  // namespace lockstep::kernels
