// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/tensor_file.h"

namespace lockstep::tensors {

/// A part of a tensor that is read in one go.
struct Part {
  std::size_t tensor = 0;
  std::uint64_t begin = 0;  ///< its first element
  std::size_t count = 0;
};

/// Elements of a tensor in memory that fits every dtype.
class Elements {
 public:
  void read(const TensorPlace& place, std::uint64_t begin, std::size_t count);

  GradientHash hash(std::size_t begin, std::size_t count, std::uint64_t first) const;
  /// Whether the two hash differently.
  bool differs(const Elements& other, std::size_t index) const;
  /// The shortest text that reads back as the element.
  std::string text(std::size_t index) const;

 private:
  /// Of 16-bit types the value, which float32 holds.
  float float32(std::size_t index) const;

  Dtype dtype_ = Dtype::float32;
  std::size_t size_ = 4;               ///< bytes of an element
  std::vector<std::uint64_t> memory_;  // words, so that every dtype is aligned
};

/// `count` elements in parts of about a megabyte.
void add_parts(std::vector<Part>& parts, std::size_t tensor, std::uint64_t count, Dtype dtype);

}  // namespace lockstep::tensors
