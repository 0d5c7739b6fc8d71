// SPDX-License-Identifier: Apache-2.0
#include "lockstep/coordinate_index.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace lockstep {

CoordinateIndex::CoordinateIndex(const Mesh& mesh, const std::vector<Axis>& axes) {
  // A coordinate is told by the rank modulo `end`, in steps of `begin`.
  struct Stretch {
    std::int64_t begin, end;
  };
  // An expert mesh may be larger than the world, where an axis of size "any" leaves too few ranks for it; and what two
  // axes have in common may end far behind it. No rank gets there.
  const std::int64_t world = mesh.world();
  const auto up_to_the_world = [world](Stretch stretch) {
    if (stretch.end > world) stretch.end = (world + stretch.begin - 1) / stretch.begin * stretch.begin;
    return stretch;
  };
  std::vector<Stretch> stretches;
  for (const Axis axis : axes) {
    const std::int64_t stride = mesh.stride(axis), size = mesh.size(axis);
    if (size > 1 && stride < world) stretches.push_back(up_to_the_world({stride, stride * size}));
  }
  std::sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  // One digit for two axes that share some, as those of the two meshes do, or that lie side by side: it tells both. The
  // stretch that this makes may reach others that were already looked at.
  const auto apart = [](const Stretch& low, const Stretch& high) {
    return high.begin > low.end && high.begin % low.end == 0;
  };
  std::vector<Stretch> merged;
  for (Stretch next : stretches) {
    while (!merged.empty() && !apart(merged.back(), next)) {
      next = up_to_the_world({std::gcd(merged.back().begin, next.begin), std::lcm(merged.back().end, next.end)});
      merged.pop_back();
    }
    merged.push_back(next);
  }
  for (auto stretch = merged.rbegin(); stretch != merged.rend(); ++stretch)
    digits_.push_back({static_cast<int>(stretch->begin), static_cast<int>(stretch->end / stretch->begin)});
}

int CoordinateIndex::size() const {
  int product = 1;
  for (const Digit& digit : digits_) product *= digit.size;
  return product;
}

int CoordinateIndex::first_rank(int number) const {
  int rank = 0;
  for (auto digit = digits_.rbegin(); digit != digits_.rend(); ++digit) {
    rank += number % digit->size * digit->stride;
    number /= digit->size;
  }
  return rank;
}

}  // namespace lockstep
