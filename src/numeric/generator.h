// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "src/numeric/loops.h"
#include "src/numeric/mix.h"

namespace lockstep::numeric {

/// What an unknown of the gradient is called in the generator: counter-based, so that any shard
/// of any contribution can be made on its own, in any order, by engine and reference alike.
///
/// The local gradient of `logical` that stems from `source`'s tokens of micro-batch `micro_batch`
/// (counted through the optimizer steps) in one use of one site.
std::uint64_t gradient_key(int logical, int source, int micro_batch, int site_use);
/// A leftover named `what`; `rank` is -1 where it is equal on all ranks.
std::uint64_t leftover_key(int logical, std::string_view what, int rank);

/// Whole numbers for elements `first`, `first + 1`, …: never 0, their absolute values spread evenly
/// over [1, 2^bits], their signs even. 0 <= bits <= max_generator_bits.
void generate(std::uint64_t key, int bits, std::uint64_t first, std::size_t count, std::int32_t* out);
inline constexpr int max_generator_bits = 28;

/// Calls work(numbers, begin, part) for the parts of `count` elements from `first` on that lie within one stretch of
/// 2^32 indices each; `begin` counts from 0. Most often there is one.
template <class Work>
void for_stretches(std::uint64_t key, int bits, std::uint64_t first, std::size_t count, const Work& work) {
  for (std::size_t begin = 0; begin < count;) {
    const std::uint64_t stretch = first >> 32;
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(count - begin, ((stretch + 1) << 32) - first));
    work(Numbers{splitmix(key, stretch), static_cast<std::uint32_t>(first), bits}, begin, part);
    first += part;
    begin += part;
  }
}

/// The same as residues modulo 2^61 - 1, spread over the whole field without 0.
void generate_residues(std::uint64_t key, std::uint64_t first, std::size_t count, std::uint64_t* out);

}  // namespace lockstep::numeric
