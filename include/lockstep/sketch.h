// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Sketch of a gradient: some hundred sums over its elements, each element in one of them, with a sign. Which one, and
/// the sign, depend on the element's global index alone, so that the sketch of a tensor is the sum of those of its
/// shards, and that of a sum of gradients is the sum of their sketches. Sums are exact: neither order nor sharding
/// shows in them. Defined in docs/sketch.md, with test vectors.
class Sketch {
 public:
  /// Of no elements. `sums`: a multiple of 64, else std::invalid_argument.
  explicit Sketch(int sums = 256, std::uint64_t seed = 0);

  /// Adds `count` elements that stand at global indices `first`, `first + 1`, ….
  void add(const float* values, std::size_t count, std::uint64_t first);
  void add(const double* values, std::size_t count, std::uint64_t first);
  /// 16-bit patterns of bfloat16, and of IEEE float16.
  void add_bfloat16(const std::uint16_t* values, std::size_t count, std::uint64_t first);
  void add_float16(const std::uint16_t* values, std::size_t count, std::uint64_t first);
  /// Adds digits that were added up elsewhere: `count` for each sum, digit d stands for digits[d] * 2^(32 * (first + d
  /// - 34)). Of absolute value below 2^62 each.
  void add_digits(const std::int64_t* digits, int first, int count);
  void add_non_finite(std::uint64_t count) { non_finite_ += count; }

  /// Both of the same number of sums and seed, else std::invalid_argument.
  Sketch& operator+=(const Sketch& other);

  int sums() const { return sums_; }
  std::uint64_t seed() const { return seed_; }
  /// Each sum, rounded to float64 once.
  std::vector<double> values() const;
  /// Infinities and elements that are no numbers; they are in no sum.
  std::uint64_t non_finite() const { return non_finite_; }
  friend bool operator==(const Sketch& a, const Sketch& b) = default;

  /// Digits of each sum, of 32 bits: enough for every float64, and for what is carried beyond.
  static constexpr int digits = 68;

 private:
  void add_one(double value, std::uint64_t index);
  void carry();

  int sums_;
  std::uint64_t seed_, key_;
  std::uint64_t non_finite_ = 0;
  /// By sum and digit, the lowest first; all but the last from 0 to 2^32 - 1 once they are carried.
  std::vector<std::int64_t> digits_;
  std::uint64_t uncarried_ = 0;
};

}  // namespace lockstep
