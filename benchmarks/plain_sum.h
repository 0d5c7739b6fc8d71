// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::bench {

// Both add up `count` words, a multiple of 16, with the widest vectors of the machine. The faster one of a machine is
// the fastest that its memory can be read with: without prefetching on Zen 4, by 5 to 15 %.
std::uint64_t plain_sum(const std::uint64_t* words, std::size_t count);
std::uint64_t prefetching_sum(const std::uint64_t* words, std::size_t count);

}  // namespace lockstep::bench
