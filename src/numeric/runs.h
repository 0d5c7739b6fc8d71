// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/model.h"

namespace lockstep::numeric {

/// Local elements of a piece that follow each other in the logical tensor too.
struct Run {
  std::int64_t local = 0;
  std::int64_t count = 0;
  std::uint64_t global = 0;  ///< global index of the first
};

/// The runs that make up local elements `elements` of a piece, in order.
std::vector<Run> find_runs(const Model& model, int logical, int piece, const Interval& elements);
/// The same in place of what `runs` holds, whose memory is used again.
void find_runs(const Model& model, int logical, int piece, const Interval& elements, std::vector<Run>& runs);

}  // namespace lockstep::numeric
