// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "kernels/arithmetic.h"
#include "kernels/program.h"

namespace lockstep::kernels {

// How a gradient's elements are stored, and in what one computes with them.

struct Bfloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};
struct Residue {
  std::uint64_t value;
};

/// Elements that one thread reads or writes at once, 16 bytes.
template <class Stored>
inline constexpr unsigned pack = 16 / sizeof(Stored);

/// Real: the type in which sums and products are exact. Whole: holds the reference before its unit. The generator's
/// numbers have no more bits than the significand of what is stored.
template <class Real, class Whole_, int significand_bits>
struct RealNumber {
  using Value = Real;
  using Whole = Whole_;
  LOCKSTEP_HOST_DEVICE static Value plus(Value a, Value b) { return a + b; }
  template <unsigned width>
  LOCKSTEP_HOST_DEVICE static void multiply(Value (&values)[width], const Factor& factor) {
    const auto by = static_cast<Value>(factor.multiply), divide = static_cast<Value>(factor.divide);
    const Value inverse = exact_inverse(divide);
    if (inverse != 0) {
      LOCKSTEP_UNROLLED
      for (unsigned i = 0; i < width; ++i) values[i] = values[i] * by * inverse;
    } else {
      LOCKSTEP_UNROLLED
      for (unsigned i = 0; i < width; ++i) values[i] = values[i] * by / divide;
    }
  }
  LOCKSTEP_HOST_DEVICE static Value contribution(const Addend& term, int bits, std::uint64_t global) {
    const auto low = static_cast<std::uint32_t>(global);
    if constexpr (std::is_same_v<Value, float>) {
      return static_cast<Value>(term.multiply) * generated_float<significand_bits>(term.key, bits, low);
    } else {
      return static_cast<Value>(term.multiply) * static_cast<Value>(generated(term.key, bits, low));
    }
  }
  // The reference: whole numbers, and a unit at the end.
  LOCKSTEP_HOST_DEVICE static void add_expected(Whole& sum, const Addend& term, int bits, std::uint64_t global) {
    sum += static_cast<Whole>(term.whole) * generated(term.key, bits, static_cast<std::uint32_t>(global));
  }
  LOCKSTEP_HOST_DEVICE static Value expected(Whole sum, double unit) {
    return static_cast<Value>(sum) * static_cast<Value>(unit);
  }
};

template <class Stored>
struct Number;

template <>
struct Number<float> : RealNumber<float, std::int32_t, 24> {
  static constexpr Domain domain = Domain::float32;
  LOCKSTEP_HOST_DEVICE static Value load(float stored) { return stored; }
  LOCKSTEP_HOST_DEVICE static float store(Value value, bool&) { return value; }
  LOCKSTEP_HOST_DEVICE static std::uint32_t pattern(float stored) { return canonical(bits_of(stored), 0x7F800000u); }
};

template <>
struct Number<double> : RealNumber<double, std::int64_t, 53> {
  static constexpr Domain domain = Domain::float64;
  LOCKSTEP_HOST_DEVICE static Value load(double stored) { return stored; }
  LOCKSTEP_HOST_DEVICE static double store(Value value, bool&) { return value; }
  LOCKSTEP_HOST_DEVICE static std::uint64_t pattern(double stored) {
    return canonical(bits_of(stored), std::uint64_t{0x7FF0000000000000u});
  }
};

template <>
struct Number<Bfloat16> : RealNumber<float, std::int32_t, 8> {
  static constexpr Domain domain = Domain::bfloat16;
  LOCKSTEP_HOST_DEVICE static Value load(Bfloat16 stored) { return float_of(std::uint32_t{stored.bits} << 16); }
  LOCKSTEP_HOST_DEVICE static Bfloat16 store(Value value, bool& lost) { return {to_bfloat16(value, lost)}; }
  LOCKSTEP_HOST_DEVICE static std::uint32_t pattern(Bfloat16 stored) {
    return canonical<std::uint16_t>(stored.bits, 0x7F80);
  }
};

template <>
struct Number<Float16> : RealNumber<float, std::int32_t, 11> {
  static constexpr Domain domain = Domain::float16;
  LOCKSTEP_HOST_DEVICE static Value load(Float16 stored) { return from_float16(stored.bits); }
  LOCKSTEP_HOST_DEVICE static Float16 store(Value value, bool& lost) { return {to_float16(value, lost)}; }
  LOCKSTEP_HOST_DEVICE static std::uint32_t pattern(Float16 stored) {
    return canonical<std::uint16_t>(stored.bits, 0x7C00);
  }
};

template <>
struct Number<Residue> {
  using Value = std::uint64_t;
  using Whole = std::uint64_t;
  static constexpr Domain domain = Domain::prime61;
  LOCKSTEP_HOST_DEVICE static Value load(Residue stored) { return stored.value; }
  LOCKSTEP_HOST_DEVICE static Residue store(Value value, bool&) { return {value}; }
  LOCKSTEP_HOST_DEVICE static std::uint64_t pattern(Residue stored) { return stored.value; }
  LOCKSTEP_HOST_DEVICE static Value plus(Value a, Value b) { return add61(a, b); }
  template <unsigned width>
  LOCKSTEP_HOST_DEVICE static void multiply(Value (&values)[width], const Factor& factor) {
    for (unsigned i = 0; i < width; ++i) values[i] = multiply61(values[i], factor.residue);
  }
  LOCKSTEP_HOST_DEVICE static Value contribution(const Addend& term, int, std::uint64_t global) {
    return multiply61(generated_residue(term.key, global), term.residue);
  }
  LOCKSTEP_HOST_DEVICE static void add_expected(Whole& sum, const Addend& term, int, std::uint64_t global) {
    sum = add61(sum, multiply61(term.residue, generated_residue(term.key, global)));
  }
  LOCKSTEP_HOST_DEVICE static Value expected(Whole sum, double) { return sum; }
};

}  // namespace lockstep::kernels
