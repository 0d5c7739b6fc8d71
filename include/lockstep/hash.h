// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

/// Hash of a gradient: the sum over its elements of a mix of global index and bits, modulo 2^64,
/// in two independent lanes. The hash of a tensor is the sum of the hashes of its shards, however
/// it is cut. -0 hashes as +0, every NaN alike. Defined in docs/hash.md, with test vectors.
struct GradientHash {
  std::uint64_t lanes[2] = {0, 0};

  GradientHash& operator+=(const GradientHash& other) {
    lanes[0] += other.lanes[0];
    lanes[1] += other.lanes[1];
    return *this;
  }
  friend bool operator==(const GradientHash& a, const GradientHash& b) {
    return a.lanes[0] == b.lanes[0] && a.lanes[1] == b.lanes[1];
  }
  /// 32 hexadecimal digits.
  std::string to_string() const;
};

/// Hash of `count` elements that stand at global indices `first`, `first + 1`, ….
GradientHash hash_elements(const float* values, std::size_t count, std::uint64_t first);
GradientHash hash_elements(const double* values, std::size_t count, std::uint64_t first);
/// 16-bit patterns of bfloat16, and of IEEE float16.
GradientHash hash_bfloat16(const std::uint16_t* values, std::size_t count, std::uint64_t first);
GradientHash hash_float16(const std::uint16_t* values, std::size_t count, std::uint64_t first);
/// Residues modulo 2^61 - 1, as the host engine uses them where no float has enough bits.
GradientHash hash_residues(const std::uint64_t* values, std::size_t count, std::uint64_t first);

}  // namespace lockstep
