// SPDX-License-Identifier: Apache-2.0
#include "lockstep/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/numeric/hash_keys.h"
#include "src/numeric/loops.h"

// docs/hash.md defines what is computed here. One 32 × 32 → 64-bit multiplication per element and
// lane: everything that depends on the index alone is either a table of one block or done once for
// each block.

namespace lockstep {

namespace {

enum class Domain : std::uint64_t { float32 = 1, float64 = 2, bfloat16 = 3, prime61 = 4, float16 = 5 };

constexpr std::size_t block = numeric::hash_block;

constexpr std::size_t most_blocks = 64;  // whose factors are worked out at a time

/// The last factors of `blocks` blocks from number `first` on.
std::array<numeric::HashFactors, most_blocks> factors_of(Domain domain, std::uint64_t first, std::size_t blocks) {
  std::array<numeric::HashFactors, most_blocks> factors;
  for (std::size_t lane = 0; lane < 2; ++lane) {
    const std::uint64_t seed = numeric::splitmix(0, 2 * block + 2 * static_cast<std::uint64_t>(domain) + lane);
    for (std::size_t b = 0; b < blocks; ++b) factors[b][lane] = numeric::splitmix(seed, first + b) | 1;
  }
  return factors;
}

template <class Element>
using Sum = GradientHash (*)(const Element* values, std::size_t count, std::size_t place);
template <class Element>
using SumBlocks = GradientHash (*)(const Element* values, std::size_t blocks, const numeric::HashFactors* factors);

template <class Element>
GradientHash hash_all(Domain domain, Sum<Element> sum_part, SumBlocks<Element> sum_blocks, const Element* values,
                      std::size_t count, std::uint64_t first) {
  GradientHash hash;
  while (count > 0) {
    const auto place = static_cast<std::size_t>(first % block);
    std::size_t part = std::min(count, block - place);
    if (part == block) {
      const std::size_t blocks = std::min(count / block, most_blocks);
      part = blocks * block;
      hash += sum_blocks(values, blocks, factors_of(domain, first / block, blocks).data());
    } else {
      const GradientHash sums = sum_part(values, part, place);
      const numeric::HashFactors factors = factors_of(domain, first / block, 1).front();
      for (std::size_t lane = 0; lane < 2; ++lane) hash.lanes[lane] += factors[lane] * sums.lanes[lane];
    }
    values += part;
    count -= part;
    first += part;
  }
  return hash;
}

}  // namespace

GradientHash hash_elements(const float* values, std::size_t count, std::uint64_t first) {
  return hash_all(Domain::float32, numeric::loops().sum_float32, numeric::loops().sum_blocks_float32, values, count,
                  first);
}

GradientHash hash_elements(const double* values, std::size_t count, std::uint64_t first) {
  return hash_all(Domain::float64, numeric::loops().sum_float64, numeric::loops().sum_blocks_float64, values, count,
                  first);
}

GradientHash hash_bfloat16(const std::uint16_t* values, std::size_t count, std::uint64_t first) {
  return hash_all(Domain::bfloat16, numeric::loops().sum_bfloat16, numeric::loops().sum_blocks_bfloat16, values, count,
                  first);
}

GradientHash hash_float16(const std::uint16_t* values, std::size_t count, std::uint64_t first) {
  return hash_all(Domain::float16, numeric::loops().sum_float16, numeric::loops().sum_blocks_float16, values, count,
                  first);
}

GradientHash hash_residues(const std::uint64_t* values, std::size_t count, std::uint64_t first) {
  return hash_all(Domain::prime61, numeric::loops().sum_residues, numeric::loops().sum_blocks_residues, values, count,
                  first);
}

std::string GradientHash::to_string() const { return fmt::format("{:016x}{:016x}", lanes[0], lanes[1]); }

}  // namespace lockstep
