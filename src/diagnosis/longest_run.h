// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::diagnosis {

/// Which of these numbers are in one of their longest ascending subsequences. Complexity: n log n.
std::vector<bool> in_longest_run(const std::vector<std::size_t>& numbers);

}  // namespace lockstep::diagnosis
