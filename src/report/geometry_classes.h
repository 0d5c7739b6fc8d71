// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/scenario.h"
#include "lockstep/timeline.h"

namespace lockstep::report {

/// The groups that a reduce-scatter cuts alike.
struct GeometryClass {
  const Step* step = nullptr;
  std::vector<std::vector<int>> groups;  ///< ranks in the order of the slices
  struct Slices {
    int parameter = 0;             ///< index into Model::parameters()
    std::int64_t numel = 0;        ///< elements that are cut
    int bucket = -1;               ///< index into `buckets`; -1 where the geometry has none
    std::int64_t position = 0;     ///< where it starts, through all buckets
    std::vector<Interval> slices;  ///< local elements, by member
  };
  std::vector<Slices> parameters;  ///< in the order in which they lie in the buckets, else in model order
  std::vector<GeometryLayout::Bucket> buckets;
};

/// How the reduce-scatters of the first optimizer step cut, each step once for each way in which
/// its groups are cut; of an `each`, the first micro-batch.
std::vector<GeometryClass> geometry_classes(const Schedule& schedule, const Timeline& timeline);

}  // namespace lockstep::report
