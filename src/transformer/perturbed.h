// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace lockstep::transformer {

/// A float64 number whose every operation is off by a relative error of `step`, up or down at random: the same program
/// then shows 2^23 times its rounding error (Monte Carlo arithmetic: D. S. Parker, UCLA CSD-970002, 1997, with errors
/// of fixed size). docs/transformer.md derives a bound from it.
///
/// `magnitude` is the sum of the absolute values of the terms that were added up to `value`. An addition is off by a
/// part of that and not of the partial sum at hand, so that the error found is at least that of the terms in any other
/// order, and so of a sum that is split over ranks.
class Perturbed {
 public:
  static constexpr double step = 0x1p-30;
  static constexpr double unit = 0x1p-53;  ///< unit roundoff of float64

  Perturbed() = default;
  explicit Perturbed(double exact) : value_(exact), magnitude_(std::abs(exact)) {}

  double value() const { return value_; }

  /// Chooses the errors that follow in this thread.
  static void seed(std::uint64_t seed) {
    state_ = seed * 2 + 1;
    operations_ = 0;
  }
  /// Operations since then.
  static std::int64_t operations() { return operations_; }

  /// A result that is off by `times` steps.
  static Perturbed rounded(double value, double times = 1) {
    Perturbed result(value);
    result.value_ += times * error(value);
    return result;
  }

  friend Perturbed operator+(const Perturbed& a, const Perturbed& b) {
    // Adding to nothing rounds nothing.
    if (a.magnitude_ == 0) return b;
    if (b.magnitude_ == 0) return a;
    Perturbed result;
    result.magnitude_ = a.magnitude_ + b.magnitude_;
    result.value_ = a.value_ + b.value_ + error(result.magnitude_);
    return result;
  }
  friend Perturbed operator-(const Perturbed& a) {
    Perturbed result = a;
    result.value_ = -a.value_;
    return result;
  }
  friend Perturbed operator-(const Perturbed& a, const Perturbed& b) { return a + -b; }
  friend Perturbed operator*(const Perturbed& a, const Perturbed& b) { return rounded(a.value_ * b.value_); }
  friend Perturbed operator/(const Perturbed& a, const Perturbed& b) { return rounded(a.value_ / b.value_); }
  Perturbed& operator+=(const Perturbed& other) { return *this = *this + other; }
  Perturbed& operator-=(const Perturbed& other) { return *this = *this - other; }
  Perturbed& operator*=(const Perturbed& other) { return *this = *this * other; }
  Perturbed& operator/=(const Perturbed& other) { return *this = *this / other; }

  friend bool operator<(const Perturbed& a, const Perturbed& b) { return a.value_ < b.value_; }
  friend bool operator>(const Perturbed& a, const Perturbed& b) { return a.value_ > b.value_; }
  friend bool operator<=(const Perturbed& a, const Perturbed& b) { return a.value_ <= b.value_; }
  friend bool operator>=(const Perturbed& a, const Perturbed& b) { return a.value_ >= b.value_; }
  friend bool operator==(const Perturbed& a, const Perturbed& b) { return a.value_ == b.value_; }
  friend bool operator!=(const Perturbed& a, const Perturbed& b) { return a.value_ != b.value_; }

  // The C library's functions are within one unit in the last place, which is two units of roundoff.
  friend Perturbed exp(const Perturbed& x) { return rounded(std::exp(x.value_), 2); }
  friend Perturbed log(const Perturbed& x) { return rounded(std::log(x.value_), 2); }
  friend Perturbed erf(const Perturbed& x) { return rounded(std::erf(x.value_), 2); }
  friend Perturbed sqrt(const Perturbed& x) { return rounded(std::sqrt(x.value_)); }
  friend Perturbed abs(const Perturbed& x) { return x.value_ < 0 ? -x : x; }

 private:
  static double error(double of) {
    // xorshift64 (G. Marsaglia, 2003); its top bit is the sign, which no processor can predict: it is put in place
    // without a branch.
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    ++operations_;
    constexpr std::uint64_t sign = std::uint64_t{1} << 63;
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(of * step) ^ (~state_ & sign));
  }

  static inline thread_local std::uint64_t state_ = 1;
  static inline thread_local std::int64_t operations_ = 0;

  double value_ = 0;
  double magnitude_ = 0;
};

}  // namespace lockstep::transformer
