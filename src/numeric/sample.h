// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "src/numeric/plan.h"

namespace lockstep::numeric {

/// Element-steps above which not every element is replayed, unless all are asked for.
inline constexpr double cost_limit = 2e9;
/// Entries that all plans of a sample may have together: members of events and contributions.
inline constexpr double entry_limit = 1e7;

/// Local elements on each side of a cut that a sample takes, and the length of its other blocks.
inline constexpr std::int64_t sample_reach = 32;
inline constexpr std::int64_t sample_block = 512;

/// Which components a replay takes, known before any of them is planned.
struct Sample {
  bool sampled = false;      ///< not all elements
  std::vector<char> chosen;  ///< by component
  double cost = 0;           ///< element-steps that a full replay of the chosen ones costs
  double entries = 0;        ///< of the plans of the chosen ones
  std::size_t left_out = 0;  ///< components
};

/// All components where a full replay stays within both limits or `force_all`. Otherwise as many of each kind (alike in
/// members, elements and steps) as a sample can afford, drawn with `seed`; one in any case.
/// Complexity: linear in components, but for a sort.
Sample choose_sample(const Components& components, const std::vector<ComponentCost>& costs, bool force_all,
                     std::uint64_t seed);

}  // namespace lockstep::numeric
