// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/numeric.h"
#include "src/numeric/plan.h"

namespace lockstep::numeric {

/// What the arithmetic of a plan must be able to hold, for local gradients of absolute value 1.
struct Need {
  /// Least common multiple of the odd parts of all denominators: local gradients are multiples of
  /// it, so that every quotient is a whole number times a power of two.
  Rational multiple{1};
  /// Largest value anywhere, in units of the last bit that is in use there.
  Rational spread;
  /// Exponents of two that occur in values and factors.
  int lowest = 0, highest = 0;

  /// More digits than any arithmetic with rounding has by far; then they are not counted to the end.
  static constexpr int most_bits = 4096;
  bool beyond() const {
    return multiple.bits() > most_bits || spread.bits() > most_bits || highest > most_bits || lowest < -most_bits;
  }

  void join(const Need& other);
};

/// Interprets the plan over (granularity, magnitude) of each buffer and of the reference.
Need find_need(const Plan& plan);

/// The arithmetic of some parameters, and how wide their local gradients are.
struct Choice {
  Arithmetic arithmetic = Arithmetic::prime61;
  Rational multiple{1};
  int bits = 0;         ///< of the generator; not for prime61
  int needed_bits = 0;  ///< of significand, for the narrowest generator that is accepted
};

/// The narrowest arithmetic that is at least as wide as `dtype` and in which everything is exact.
Choice choose_arithmetic(Dtype dtype, const Need& need);

/// Fills the numbers of all factors. Returns false where one is a multiple of 2^61 - 1 or has it
/// in its denominator: then nothing can be said modulo that prime.
bool bind(Plan& plan, const Choice& choice);

/// Significand bits of a type; 61 for the field.
int significand_bits(Arithmetic arithmetic);

}  // namespace lockstep::numeric
