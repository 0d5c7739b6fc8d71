// SPDX-License-Identifier: Apache-2.0
// What two schedules have in common is their content: where and in which order it was written is left out. Each member
// is named, so that one more does not compile until somebody has said what it is.
#include <tuple>

#include "lockstep/schedule.h"

namespace lockstep {

namespace {

auto content(const Geometry& geometry) {
  const auto& [kind, align, size, align_parameter, align_bucket, separate, counts, place] = geometry;
  return std::tie(kind, align, size, align_parameter, align_bucket, separate, counts);
}

auto content(const Step& step) {
  const auto& [name, op, params, over, reduction, by, when, only, root, geometry, on_owned, async, buffer, from, uses,
               what, per_rank, count, mean_of_norms, wait_for, steps, keys, place, places] = step;
  return std::tie(name, op, params, over, reduction, by, when, only, root, geometry, on_owned, async, buffer, from,
                  uses, what, per_rank, count, mean_of_norms, wait_for, steps);
}

}  // namespace

bool operator==(const Geometry& a, const Geometry& b) { return content(a) == content(b); }

bool operator==(const Step& a, const Step& b) { return content(a) == content(b); }

bool operator==(const Schedule& a, const Schedule& b) {
  const auto content_of = [](const Schedule& schedule) {
    const auto& [mesh, model, batch, steps, result, decided_by_numel] = schedule;
    return std::tie(mesh.layout(), model.parameters(), batch, steps, result);
  };
  return content_of(a) == content_of(b);
}

}  // namespace lockstep
