// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::bench {

/// Adds up `count` words, a multiple of 16, with the widest vectors of the machine and with prefetching: the fastest
/// that memory can be read with.
std::uint64_t plain_sum(const std::uint64_t* words, std::size_t count);

}  // namespace lockstep::bench
