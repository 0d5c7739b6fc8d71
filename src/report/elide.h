// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::report {

/// What a formula may take up in a table, in a line of its own, and on each side of "becomes".
constexpr std::size_t widest_cell = 40, widest_line = 200, widest_side = 95;
constexpr std::size_t unlimited_width = static_cast<std::size_t>(-1);

/// `formula` in at most `most` columns. A longer one is cut after a term, where one fits in, and
/// says how many terms it has in all: "g0.m0+g0.m1 … (16 terms)".
std::string elided(const std::string& formula, std::size_t most);

}  // namespace lockstep::report
