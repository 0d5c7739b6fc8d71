// SPDX-License-Identifier: Apache-2.0
#include "src/mesh/instances.h"

#include <algorithm>

namespace lockstep::mesh {

namespace {

/// Whether an axis stands behind dp: it is slower. One that the order leaves out has size 1.
bool is_slower(const Layout& layout, Axis axis) {
  const auto dp = std::find(layout.order.begin(), layout.order.end(), Axis::dp);
  return std::find(dp, layout.order.end(), axis) != layout.order.end();
}

}  // namespace

bool instance_groups_agree(const Layout& layout) {
  if (layout.dp_replicate == 1 || !layout.splits_edp()) return true;
  if (layout.cp > 1 && is_slower(layout, Axis::cp)) return false;
  // The replicas lie behind each other with the stride of all that dp and the axes in front of it span: the world
  // without what is slower. pp is the same in both meshes.
  const bool slow_tp = is_slower(layout, Axis::tp);
  const int dense = slow_tp ? layout.tp : 1;
  const int expert = (slow_tp ? layout.etp : 1) * (is_slower(layout, Axis::ep) ? layout.ep : 1);
  return dense == expert;
}

bool instance_groups_always_agree(const Layout& layout) {
  return std::none_of(layout.order.begin(), layout.order.end(),
                      [&](Axis axis) { return axis != Axis::dp && axis != Axis::pp && is_slower(layout, axis); });
}

}  // namespace lockstep::mesh
