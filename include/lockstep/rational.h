// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// An exact rational number. Small values are a pair of 64-bit integers; whatever does not fit
/// falls over to big integers, so that no operation can overflow or round.
///
/// Always in lowest terms with a positive denominator, hence equality is equality of the fields.
/// Immutable and cheap to copy; concurrent reads are safe.
class Rational {
 public:
  Rational() = default;
  Rational(std::int64_t value) : numerator_(value) {}  // NOLINT: a number is a number
  /// `denominator` must not be 0.
  Rational(std::int64_t numerator, std::int64_t denominator);

  /// Reads "12", "-3/4", "0.1" (exactly 1/10) and "5e8". Nothing if `text` is anything else, or
  /// if its exponent is beyond ±400 or it has more than 10,000 characters.
  static std::optional<Rational> parse(std::string_view text);

  Rational operator-() const;
  friend Rational operator+(const Rational& a, const Rational& b);
  friend Rational operator-(const Rational& a, const Rational& b);
  friend Rational operator*(const Rational& a, const Rational& b);
  /// `b` must not be 0.
  friend Rational operator/(const Rational& a, const Rational& b);
  friend bool operator==(const Rational& a, const Rational& b);
  friend bool operator<(const Rational& a, const Rational& b);
  friend bool operator!=(const Rational& a, const Rational& b) { return !(a == b); }
  friend bool operator>(const Rational& a, const Rational& b) { return b < a; }
  friend bool operator<=(const Rational& a, const Rational& b) { return !(b < a); }
  friend bool operator>=(const Rational& a, const Rational& b) { return !(a < b); }
  Rational& operator+=(const Rational& b) { return *this = *this + b; }
  Rational& operator*=(const Rational& b) { return *this = *this * b; }

  bool is_zero() const { return !big_ && numerator_ == 0; }
  bool is_one() const { return !big_ && numerator_ == 1 && denominator_ == 1; }
  bool is_negative() const;
  bool is_integer() const;
  /// The value, if it is a whole number that fits.
  std::optional<std::int64_t> to_int64() const;
  /// Largest whole number not above the value.
  Rational floor() const;
  /// "3", "-1/2".
  std::string to_string() const;
  /// Numerator and denominator as whole numbers; the denominator is positive.
  Rational numerator() const;
  Rational denominator() const;
  /// Least common multiple of two positive whole numbers.
  static Rational lcm(const Rational& a, const Rational& b);
  /// The value modulo the prime 2^61 - 1. Nothing if the denominator is a multiple of it.
  std::optional<std::uint64_t> modulo_prime61() const;
  /// log2 of the absolute value, rounded up; 0 for values of at most 1.
  int bits() const;
  std::size_t hash() const;

 private:
  struct Big;
  static Rational from_big(Big&& value);
  static Rational in_lowest_terms(Big&& value);
  Big to_big() const;
  std::int64_t numerator_ = 0;
  std::int64_t denominator_ = 1;
  std::shared_ptr<const Big> big_;  // set exactly when the value does not fit the fields above
};

}  // namespace lockstep

template <>
struct std::hash<lockstep::Rational> {
  std::size_t operator()(const lockstep::Rational& value) const { return value.hash(); }
};
