// SPDX-License-Identifier: Apache-2.0
#include "lockstep/sketch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "src/base/at.h"
#include "src/numeric/mix.h"

// docs/sketch.md defines what is computed here. Sums are whole numbers in units of 2^-1088, in digits of 32 bits; a
// digit has room for 2^31 additions before it is carried.

namespace lockstep {

namespace {

constexpr int unit_exponent = -32 * 34;
constexpr int digit_bits = 32;
constexpr std::int64_t digit_base = std::int64_t{1} << digit_bits;
constexpr std::uint64_t key_number = 2048;  // behind those of the hash
constexpr std::uint64_t most_uncarried = std::uint64_t{1} << 30;

float from_bfloat16(std::uint16_t pattern) { return std::bit_cast<float>(std::uint32_t{pattern} << 16); }

double from_float16(std::uint16_t pattern) {
  const int exponent = pattern >> 10 & 31, digits = pattern & 0x3FF;
  if (exponent == 31) return INFINITY;  // or no number: both are only counted
  const double size = exponent == 0 ? std::ldexp(digits, -24) : std::ldexp(digits + 1024, exponent - 25);
  return (pattern & 0x8000) != 0 ? -size : size;
}

/// Digits of a magnitude, in units of 2^unit_exponent, rounded to the nearest float64, to even in the middle.
double rounded(const std::array<std::uint32_t, Sketch::digits>& magnitude) {
  int top = Sketch::digits - 1;
  while (top >= 0 && magnitude[at(top)] == 0) --top;
  if (top < 0) return 0;
  const auto bit = [&](int number) -> std::uint64_t {
    return magnitude[at(number / digit_bits)] >> (number % digit_bits) & 1u;
  };
  const int highest = top * digit_bits + std::bit_width(magnitude[at(top)]) - 1;
  const int lowest = std::max(highest - 52, -1074 - unit_exponent);
  std::uint64_t significand = 0;
  for (int number = highest; number >= lowest; --number) significand = 2 * significand + bit(number);
  if (lowest > 0 && bit(lowest - 1) != 0) {
    bool more = (significand & 1) != 0;
    for (int number = 0; number + 1 < lowest && !more; ++number) more = bit(number) != 0;
    significand += more ? 1 : 0;
  }
  return std::ldexp(static_cast<double>(significand), lowest + unit_exponent);
}

}  // namespace

Sketch::Sketch(int sums, std::uint64_t seed) : sums_(sums), seed_(seed), key_(numeric::splitmix(seed, key_number)) {
  if (sums < 64 || sums % 64 != 0) throw std::invalid_argument("a sketch has a multiple of 64 sums");
  digits_.resize(static_cast<std::size_t>(sums) * digits);
}

void Sketch::add_one(double value, std::uint64_t index) {
  if (value == 0) return;
  if (!std::isfinite(value)) {
    ++non_finite_;
    return;
  }
  const std::uint64_t block = index / 64, place = index % 64;
  const std::uint64_t where = numeric::splitmix(key_, 2 * block), signs = numeric::splitmix(key_, 2 * block + 1);
  const std::uint64_t group = (where >> 32) * static_cast<std::uint64_t>(sums_ / 64) >> 32;
  std::int64_t* const sum = digits_.data() + (64 * group + (where + place) % 64) * digits;
  int exponent = 0;
  const auto significand = static_cast<std::uint64_t>(std::ldexp(std::frexp(std::abs(value), &exponent), 53));
  // Below 2^-1021 the last bits are zeros: they would stand below the unit.
  const int position = std::max(exponent - 53 - unit_exponent, 0), shift = position % digit_bits;
  const std::uint64_t kept = significand >> std::max(unit_exponent - (exponent - 53), 0);
  const std::uint64_t low = (kept & (digit_base - 1)) << shift, high = (kept >> digit_bits) << shift;
  const std::uint64_t parts[] = {low & (digit_base - 1), (low >> digit_bits) + (high & (digit_base - 1)),
                                 high >> digit_bits};
  const bool negative = (value < 0) != ((signs >> place & 1) != 0);
  for (int i = 0; i < 3; ++i) {
    const auto part = static_cast<std::int64_t>(parts[i]);
    sum[position / digit_bits + i] += negative ? -part : part;
  }
  if (++uncarried_ >= most_uncarried) carry();
}

void Sketch::add(const double* values, std::size_t count, std::uint64_t first) {
  for (std::size_t i = 0; i < count; ++i) add_one(values[i], first + i);
  carry();
}
void Sketch::add(const float* values, std::size_t count, std::uint64_t first) {
  for (std::size_t i = 0; i < count; ++i) add_one(values[i], first + i);
  carry();
}
void Sketch::add_bfloat16(const std::uint16_t* values, std::size_t count, std::uint64_t first) {
  for (std::size_t i = 0; i < count; ++i) add_one(from_bfloat16(values[i]), first + i);
  carry();
}
void Sketch::add_float16(const std::uint16_t* values, std::size_t count, std::uint64_t first) {
  for (std::size_t i = 0; i < count; ++i) add_one(from_float16(values[i]), first + i);
  carry();
}

void Sketch::add_digits(const std::int64_t* added, int first, int count) {
  if (first < 0 || count < 0 || first + count > digits) throw std::invalid_argument("a sketch has not so many digits");
  for (int sum = 0; sum < sums_; ++sum) {
    for (int i = 0; i < count; ++i) digits_[at(sum * digits + first + i)] += added[at(sum * count + i)];
  }
  carry();
}

Sketch& Sketch::operator+=(const Sketch& other) {
  if (other.sums_ != sums_ || other.seed_ != seed_)
    throw std::invalid_argument("sketches of different numbers of sums or seeds cannot be added");
  for (std::size_t i = 0; i < digits_.size(); ++i) digits_[i] += other.digits_[i];
  non_finite_ += other.non_finite_;
  carry();
  return *this;
}

void Sketch::carry() {
  for (std::size_t begin = 0; begin < digits_.size(); begin += digits) {
    for (std::size_t i = begin; i + 1 < begin + digits; ++i) {
      const std::int64_t carried = digits_[i] >> digit_bits;  // towards minus infinity
      digits_[i] -= carried * digit_base;
      digits_[i + 1] += carried;
    }
  }
  uncarried_ = 0;
}

std::vector<double> Sketch::values() const {
  std::vector<double> result;
  for (std::size_t begin = 0; begin < digits_.size(); begin += digits) {
    const bool negative = digits_[begin + digits - 1] < 0;
    std::array<std::uint32_t, digits> magnitude{};
    std::int64_t borrowed = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const std::int64_t digit = (negative ? -digits_[begin + i] : digits_[begin + i]) + borrowed;
      borrowed = digit >> digit_bits;
      magnitude[i] = static_cast<std::uint32_t>(digit & (digit_base - 1));
    }
    result.push_back(negative ? -rounded(magnitude) : rounded(magnitude));
  }
  return result;
}

}  // namespace lockstep
