// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

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

/// The same as residues modulo 2^61 - 1, spread over the whole field without 0.
void generate_residues(std::uint64_t key, std::uint64_t first, std::size_t count, std::uint64_t* out);

}  // namespace lockstep::numeric
