// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::parametric {

/// A set of numbers below a size, which is that of every other set that it meets.
class Bits {
 public:
  explicit Bits(std::size_t size, bool all = false) : words_((size + width - 1) / width, all ? ~std::uint64_t{0} : 0) {
    if (all && size % width != 0) words_.back() >>= width - size % width;
  }

  void insert(std::size_t number) { words_[number / width] |= std::uint64_t{1} << number % width; }
  bool contains(std::size_t number) const { return (words_[number / width] >> number % width & 1U) != 0; }
  bool empty() const {
    return std::all_of(words_.begin(), words_.end(), [](std::uint64_t word) { return word == 0; });
  }

  void keep(const Bits& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
  }
  void add(const Bits& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  void remove(const Bits& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
  }

  /// How many both have.
  std::size_t shared(const Bits& other) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < words_.size(); ++i)
      count += static_cast<std::size_t>(std::popcount(words_[i] & other.words_[i]));
    return count;
  }
  bool meets(const Bits& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if ((words_[i] & other.words_[i]) != 0) return true;
    }
    return false;
  }

  /// The first one for which `is_it` holds, in ascending order; the size or more where there is none.
  template <class IsIt>
  std::size_t find(IsIt is_it) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t word = words_[i]; word != 0; word &= word - 1) {
        const std::size_t number = i * width + static_cast<std::size_t>(std::countr_zero(word));
        if (is_it(number)) return number;
      }
    }
    return words_.size() * width;
  }

 private:
  static constexpr std::size_t width = 64;
  std::vector<std::uint64_t> words_;
};

}  // namespace lockstep::parametric
