// SPDX-License-Identifier: Apache-2.0
#include "lockstep/rational.h"

#include <algorithm>
#include <bit>
#include <boost/multiprecision/cpp_int.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <utility>

#include "lockstep/diagnostic.h"
#include "src/base/allocations.h"

namespace lockstep {

using Integer = boost::multiprecision::cpp_int;

/// In lowest terms with a positive denominator, like the small form.
struct Rational::Big {
  Integer numerator;
  Integer denominator;
};

namespace {

__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

constexpr std::int64_t smallest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t prime61 = (std::uint64_t{1} << 61) - 1;

std::uint64_t magnitude(std::int64_t value) {
  return value < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
}

std::uint64_t gcd(std::uint64_t a, std::uint64_t b) {
  while (b != 0) a = std::exchange(b, a % b);
  return a;
}

/// `denominator` is positive, so that the result fits even where `value` is the smallest number.
std::int64_t gcd(std::int64_t value, std::int64_t denominator) {
  if (denominator == 1) return 1;
  return static_cast<std::int64_t>(gcd(magnitude(value), static_cast<std::uint64_t>(denominator)));
}

bool multiply(std::int64_t a, std::int64_t b, std::int64_t& result) { return !__builtin_mul_overflow(a, b, &result); }

std::uint64_t multiply_modulo(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint64_t>(UnsignedWide{a} * b % prime61);
}

/// a^(p-2), by Fermat the inverse of `a`.
std::uint64_t inverse_modulo(std::uint64_t a) {
  std::uint64_t result = 1;
  for (std::uint64_t exponent = prime61 - 2; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result = multiply_modulo(result, a);
    a = multiply_modulo(a, a);
  }
  return result;
}

/// Of two whole numbers, the second of which is positive. What takes the square of their digits is left for two long
/// ones.
Integer common_divisor(const Integer& a, const Integer& b) {
  if (b == 1) return 1;
  if (b <= std::numeric_limits<std::uint64_t>::max()) {
    const auto small = static_cast<std::uint64_t>(b);
    return gcd(static_cast<std::uint64_t>(abs(a) % small), small);
  }
  if (a != 0 && abs(a) <= std::numeric_limits<std::uint64_t>::max()) {
    const auto small = static_cast<std::uint64_t>(abs(a));
    return gcd(static_cast<std::uint64_t>(b % small), small);
  }
  constexpr std::int64_t bits_squared_of_a_unit = 2'000;
  const auto bits = static_cast<std::int64_t>(std::max(a == 0 ? 0U : msb(abs(a)), msb(b)));
  allocations_of_thread.units += bits * bits / bits_squared_of_a_unit;  // which the next Budget::spend() takes
  return boost::multiprecision::gcd(a, b);
}

std::uint64_t residue(const Integer& value) {
  const Integer rest = value % prime61;  // takes the sign of `value`
  return static_cast<std::uint64_t>(rest < 0 ? Integer(rest + prime61) : rest);
}

}  // namespace

Rational::Rational(std::int64_t numerator, std::int64_t denominator) {
  if (denominator == 0) throw InternalError("a Rational with denominator 0");
  if (denominator < 0 && (numerator == smallest || denominator == smallest)) {
    *this = from_big({-Integer(numerator), -Integer(denominator)});
    return;
  }
  if (denominator < 0) {
    numerator = -numerator;
    denominator = -denominator;
  }
  const std::int64_t common = gcd(numerator, denominator);
  numerator_ = numerator / common;
  denominator_ = denominator / common;
}

/// Brings `value`, whose denominator is positive, to lowest terms, and to the small form if it fits.
Rational Rational::from_big(Big&& value) {
  const Integer common = common_divisor(value.numerator, value.denominator);
  if (common != 1) {
    value.numerator /= common;
    value.denominator /= common;
  }
  return in_lowest_terms(std::move(value));
}

Rational Rational::in_lowest_terms(Big&& value) {
  Rational result;
  if (value.numerator >= smallest && value.numerator <= largest && value.denominator <= largest) {
    result.numerator_ = static_cast<std::int64_t>(value.numerator);
    result.denominator_ = static_cast<std::int64_t>(value.denominator);
  } else {
    result.big_ = std::make_shared<const Big>(std::move(value));
  }
  return result;
}

Rational::Big Rational::to_big() const { return big_ ? *big_ : Big{numerator_, denominator_}; }

Rational Rational::operator-() const {
  if (big_ || numerator_ == smallest) {
    Big value = to_big();
    return from_big({-value.numerator, std::move(value.denominator)});
  }
  Rational result;
  result.numerator_ = -numerator_;
  result.denominator_ = denominator_;
  return result;
}

Rational operator+(const Rational& a, const Rational& b) {
  if (!a.big_ && !b.big_) {
    // Knuth, 4.5.1: with g the denominators' divisor, only g can have anything in common with the sum.
    const std::int64_t common = gcd(a.denominator_, b.denominator_);
    std::int64_t left, right, sum, denominator;
    if (multiply(a.numerator_, b.denominator_ / common, left) &&
        multiply(b.numerator_, a.denominator_ / common, right) && !__builtin_add_overflow(left, right, &sum)) {
      const std::int64_t again = gcd(sum, common);
      if (multiply(a.denominator_ / again, b.denominator_ / common, denominator)) {
        Rational result;
        result.numerator_ = sum / again;
        result.denominator_ = denominator;
        return result;
      }
    }
  }
  const Rational::Big x = a.to_big(), y = b.to_big();
  return Rational::from_big({x.numerator * y.denominator + y.numerator * x.denominator, x.denominator * y.denominator});
}

Rational operator-(const Rational& a, const Rational& b) { return a + -b; }

Rational operator*(const Rational& a, const Rational& b) {
  if (!a.big_ && !b.big_) {
    const std::int64_t left = gcd(a.numerator_, b.denominator_), right = gcd(b.numerator_, a.denominator_);
    Rational result;
    if (multiply(a.numerator_ / left, b.numerator_ / right, result.numerator_) &&
        multiply(a.denominator_ / right, b.denominator_ / left, result.denominator_)) {
      return result;
    }
  }
  // What the factors have in common stands across, in shorter numbers than in the product.
  const Rational::Big x = a.to_big(), y = b.to_big();
  const Integer left = common_divisor(x.numerator, y.denominator), right = common_divisor(y.numerator, x.denominator);
  return Rational::in_lowest_terms(
      {(x.numerator / left) * (y.numerator / right), (x.denominator / right) * (y.denominator / left)});
}

Rational operator/(const Rational& a, const Rational& b) {
  if (b.is_zero()) throw InternalError("a Rational divided by 0");
  if (!b.big_) return a * Rational(b.denominator_, b.numerator_);
  const Rational::Big x = a.to_big();
  Rational::Big result{x.numerator * b.big_->denominator, x.denominator * b.big_->numerator};
  if (result.denominator < 0) {
    result.numerator = -result.numerator;
    result.denominator = -result.denominator;
  }
  return Rational::from_big(std::move(result));
}

bool operator==(const Rational& a, const Rational& b) {
  if (a.big_ && b.big_) return a.big_->numerator == b.big_->numerator && a.big_->denominator == b.big_->denominator;
  return !a.big_ && !b.big_ && a.numerator_ == b.numerator_ && a.denominator_ == b.denominator_;
}

bool operator<(const Rational& a, const Rational& b) {
  if (!a.big_ && !b.big_) return Wide{a.numerator_} * b.denominator_ < Wide{b.numerator_} * a.denominator_;
  const Rational::Big x = a.to_big(), y = b.to_big();
  return x.numerator * y.denominator < y.numerator * x.denominator;
}

bool Rational::is_negative() const { return big_ ? big_->numerator < 0 : numerator_ < 0; }
bool Rational::is_integer() const { return big_ ? big_->denominator == 1 : denominator_ == 1; }

std::optional<std::int64_t> Rational::to_int64() const {
  if (big_ || denominator_ != 1) return std::nullopt;
  return numerator_;
}

Rational Rational::floor() const {
  if (is_integer()) return *this;
  if (!big_) return numerator_ / denominator_ - (numerator_ < 0 ? 1 : 0);
  Integer quotient = big_->numerator / big_->denominator;
  if (big_->numerator < 0) --quotient;
  return from_big({std::move(quotient), 1});
}

std::string Rational::to_string() const {
  std::string numerator = big_ ? big_->numerator.str() : std::to_string(numerator_);
  if (is_integer()) return numerator;
  return numerator + "/" + (big_ ? big_->denominator.str() : std::to_string(denominator_));
}

Rational Rational::numerator() const { return big_ ? from_big({big_->numerator, 1}) : Rational(numerator_); }
Rational Rational::denominator() const { return big_ ? from_big({big_->denominator, 1}) : Rational(denominator_); }

Rational Rational::lcm(const Rational& a, const Rational& b) {
  if (!a.is_integer() || !b.is_integer() || !(Rational(0) < a) || !(Rational(0) < b)) {
    throw InternalError("the least common multiple of " + a.to_string() + " and " + b.to_string());
  }
  if (!a.big_ && !b.big_) return Rational(a.numerator_ / gcd(a.numerator_, b.numerator_)) * b;
  return from_big({boost::multiprecision::lcm(a.to_big().numerator, b.to_big().numerator), 1});
}

std::optional<std::uint64_t> Rational::modulo_prime61() const {
  std::uint64_t above, below;
  if (big_) {
    above = residue(big_->numerator);
    below = residue(big_->denominator);
  } else {
    above = magnitude(numerator_) % prime61;
    if (numerator_ < 0 && above != 0) above = prime61 - above;
    below = magnitude(denominator_) % prime61;
  }
  if (below == 0) return std::nullopt;
  return below == 1 ? above : multiply_modulo(above, inverse_modulo(below));
}

int Rational::bits() const {
  // Shift the denominator to the length of the numerator; the power sought is that shift or one more.
  if (!big_) {
    const std::uint64_t above = magnitude(numerator_), below = magnitude(denominator_);
    if (above <= below) return 0;
    const int shift = static_cast<int>(std::bit_width(above)) - static_cast<int>(std::bit_width(below));
    return above <= below << shift ? shift : shift + 1;
  }
  const Integer above = abs(big_->numerator);
  if (above <= big_->denominator) return 0;
  const unsigned shift = msb(above) - msb(big_->denominator);
  return static_cast<int>(above <= big_->denominator << shift ? shift : shift + 1);
}

std::size_t Rational::hash() const {
  const auto above = big_ ? residue(big_->numerator) : static_cast<std::uint64_t>(numerator_);
  const auto below = big_ ? residue(big_->denominator) : static_cast<std::uint64_t>(denominator_);
  std::uint64_t mixed = (above ^ std::rotl(below * 0x9E3779B97F4A7C15U, 32)) * 0xBF58476D1CE4E5B9U;
  return static_cast<std::size_t>(mixed ^ (mixed >> 29));
}

namespace {

constexpr std::size_t longest_number = 10'000;  // reading is quadratic in them
constexpr int largest_exponent = 400;

/// Takes the digits at the front of `text`, possibly none.
std::string_view take_digits(std::string_view& text) {
  std::size_t count = 0;
  while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

bool take(std::string_view& text, char wanted) {
  if (text.empty() || text.front() != wanted) return false;
  text.remove_prefix(1);
  return true;
}

Integer to_integer(std::string_view digits) {
  const std::size_t first = digits.find_first_not_of('0');  // a leading 0 would mean octal
  return first == std::string_view::npos ? Integer(0) : Integer(std::string(digits.substr(first)));
}

/// Takes an exponent if there is one; false if it is malformed or too large.
bool take_exponent(std::string_view& text, int& exponent) {
  exponent = 0;
  if (!take(text, 'e') && !take(text, 'E')) return true;
  const bool negative = take(text, '-');
  if (!negative) take(text, '+');
  const std::string_view digits = take_digits(text);
  if (digits.empty()) return false;
  for (const char digit : digits) {
    exponent = exponent * 10 + (digit - '0');
    if (exponent > largest_exponent) return false;
  }
  if (negative) exponent = -exponent;
  return true;
}

}  // namespace

std::optional<Rational> Rational::parse(std::string_view text) {
  if (text.size() > longest_number) return std::nullopt;
  // Nearly all that a file has.
  constexpr std::size_t few = 18;
  std::int64_t small = 0;
  const char* const end = text.data() + text.size();
  if (!text.empty() && text.size() <= few && std::from_chars(text.data(), end, small).ptr == end)
    return Rational(small);
  const bool negative = take(text, '-');
  const std::string_view whole = take_digits(text);
  if (whole.empty()) return std::nullopt;
  Integer numerator, denominator = 1;
  if (take(text, '/')) {
    const std::string_view below = take_digits(text);
    numerator = to_integer(whole);
    denominator = to_integer(below);
  } else {
    std::string_view fraction;
    int exponent = 0;
    if (take(text, '.')) {
      fraction = take_digits(text);
      if (fraction.empty()) return std::nullopt;
    }
    if (!take_exponent(text, exponent)) return std::nullopt;
    numerator = to_integer(std::string(whole).append(fraction));
    const int power = exponent - static_cast<int>(fraction.size());
    Integer& scaled = power < 0 ? denominator : numerator;
    scaled *= boost::multiprecision::pow(Integer(10), static_cast<unsigned>(power < 0 ? -power : power));
  }
  if (!text.empty() || denominator == 0) return std::nullopt;
  if (negative) numerator = -numerator;
  return from_big({std::move(numerator), std::move(denominator)});
}

}  // namespace lockstep
