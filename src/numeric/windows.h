// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "src/numeric/plan.h"

namespace lockstep::numeric {

/// Local elements at which something changes: slices of reductions, ends of what calls act on or
/// ranks own, and both ends of the buffer. Ascending.
std::vector<std::int64_t> find_cuts(const Plan& plan);

/// The elements within `reach` of a cut.
Intervals around(const std::vector<std::int64_t>& cuts, std::int64_t reach, std::int64_t numel);

/// At most `count` of the cuts, drawn with `seed`, the first and last among them.
std::vector<std::int64_t> thin_out(const std::vector<std::int64_t>& cuts, std::size_t count, std::uint64_t seed);

/// `count` blocks of `length` elements at places drawn with `seed`.
Intervals random_blocks(std::int64_t numel, std::int64_t length, std::int64_t count, std::uint64_t seed);

}  // namespace lockstep::numeric
