// SPDX-License-Identifier: Apache-2.0
#include "src/live/run_layout.h"

#include <algorithm>
#include <numeric>

#include "src/base/counted.h"

namespace lockstep::live {

std::optional<Layout> layout_of(const Header& header) {
  std::vector<int> counted(header.mesh_ranks.size());
  std::iota(counted.begin(), counted.end(), 0);
  if (header.mesh_ranks != counted) return std::nullopt;
  Layout layout;
  layout.order.clear();
  for (std::size_t i = header.axes.size(); i-- > 0;) {  // the fastest first
    const std::optional<Axis> axis = axis_named(header.axes[i]);
    const int size = header.sizes[i];
    if (axis == Axis::tp) {
      layout.tp = size;
    } else if (axis == Axis::cp) {
      layout.cp = size;
    } else if (axis == Axis::sp) {
      layout.sp = size;
    } else if (axis == Axis::pp) {
      layout.pp = size;
    } else if (axis == Axis::dp || axis == Axis::dp_shard || axis == Axis::dp_replicate) {
      layout.dp_shard = size;
      if (axis == Axis::dp_shard && i > 0 && header.axes[i - 1] == name_of(Axis::dp_replicate))
        layout.dp_replicate = header.sizes[--i];
      layout.dp = layout.dp_shard * layout.dp_replicate;
    } else {
      return std::nullopt;
    }
    const bool data = axis != Axis::tp && axis != Axis::cp && axis != Axis::sp && axis != Axis::pp;
    const Axis ordered = data ? Axis::dp : *axis;
    if (std::find(layout.order.begin(), layout.order.end(), ordered) != layout.order.end()) return std::nullopt;
    layout.order.push_back(ordered);
  }
  return layout;
}

bool splits_tokens(std::string_view axis) {
  return axis.starts_with("dp") || axis == name_of(Axis::edp) || axis == name_of(Axis::ep) || splits_sequence(axis);
}

bool splits_sequence(std::string_view axis) { return axis == name_of(Axis::cp) || axis == name_of(Axis::sp); }

}  // namespace lockstep::live
