// SPDX-License-Identifier: Apache-2.0
#include "lockstep/mesh.h"

#include <algorithm>

#include "lockstep/diagnostic.h"
#include "src/base/at.h"
#include "src/base/budget.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, axis_count> names = {
    "tp", "cp", "sp", "dp", "pp", "ep", "etp", "edp", "dp_shard", "dp_replicate", "edp_shard", "edp_replicate"};

std::size_t index(Axis axis) { return static_cast<std::size_t>(axis); }

/// The order of a layout with the axes that it leaves out behind the others.
std::vector<Axis> full_order(const Layout& layout) {
  std::vector<Axis> order = layout.order;
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::sp, Axis::ep, Axis::dp, Axis::pp}) {
    if (std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
  }
  return order;
}

/// Stride of pp in the expert mesh, and by the way of its other axes.
int expert_strides(const Layout& layout, std::array<int, axis_count>& stride) {
  int next = 1, pp_stride = 1;
  for (const Axis axis : full_order(layout)) {
    switch (axis) {
      case Axis::tp:
        stride[index(Axis::etp)] = next;
        next *= layout.etp;
        break;
      case Axis::ep:
        stride[index(Axis::ep)] = next;
        next *= layout.ep;
        break;
      case Axis::dp:
        stride[index(Axis::edp)] = next;
        next *= layout.edp();
        break;
      case Axis::pp:
        pp_stride = next;
        next *= layout.pp;
        break;
      default:
        break;
    }
  }
  return pp_stride;
}

/// An axis of the mesh over which groups are formed, with the stride that it has there.
struct Digit {
  Axis axis;
  int stride;
  int size;
  bool varies = false;  ///< inside a group
  bool holds(const Over::Pick& pick, int rank) const {
    const int coordinate = rank / stride % size;
    return !pick.coordinates ||
           std::find(pick.coordinates->begin(), pick.coordinates->end(), coordinate) != pick.coordinates->end();
  }
};

}  // namespace

std::string_view name_of(Axis axis) { return names[index(axis)]; }

std::optional<Axis> axis_named(std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Axis>(found - names.begin());
}

const std::vector<std::string>& axis_names() {
  static const auto all = made_once([] { return std::vector<std::string>(names.begin(), names.end()); });
  return all;
}

bool is_expert_axis(Axis axis) {
  return axis == Axis::ep || axis == Axis::etp || axis == Axis::edp || is_part_of(axis, Axis::edp);
}

bool is_part_of(Axis part, Axis whole) {
  if (whole == Axis::dp) return part == Axis::dp_shard || part == Axis::dp_replicate;
  return whole == Axis::edp && (part == Axis::edp_shard || part == Axis::edp_replicate);
}

std::int64_t Coordinate::on(int size) const {
  switch (kind) {
    case Kind::first:
      return 0;
    case Kind::last:
      return std::int64_t{size} - 1;
    case Kind::number:
      break;
  }
  return number < 0 ? std::int64_t{number} + size : number;
}

Mesh::Mesh(Layout layout) : layout_(std::move(layout)), world_(layout_.world()) {
  const Layout& l = layout_;
  const int edp_shard = l.edp() / l.edp_replicate();
  size_ = {l.tp,  l.cp,    l.sp,       l.dp,           l.pp,      l.ep,
           l.etp, l.edp(), l.dp_shard, l.dp_replicate, edp_shard, l.edp_replicate()};
  stride_.fill(1);
  int next = 1;
  for (const Axis axis : full_order(l)) {
    if (axis == Axis::ep) continue;
    stride_[index(axis)] = next;
    next *= size(axis);
  }
  stride_[index(Axis::dp_shard)] = stride_[index(Axis::dp)];
  stride_[index(Axis::dp_replicate)] = stride_[index(Axis::dp)] * l.dp_shard;
  const int expert_pp_stride = expert_strides(l, stride_);
  stride_[index(Axis::edp_shard)] = stride_[index(Axis::edp)];
  stride_[index(Axis::edp_replicate)] = stride_[index(Axis::edp)] * edp_shard;
  pipeline_groups_agree_ = l.pp == 1 || expert_pp_stride == stride_[index(Axis::pp)];
}

Groups Mesh::groups(const Over& over) const {
  const auto is_of_expert_mesh = [](const Over::Pick& pick) { return is_expert_axis(pick.axis); };
  std::vector<Digit> digits;
  std::vector<std::pair<const Over::Pick*, Digit>> filters;
  if (std::any_of(over.picks.begin(), over.picks.end(), is_of_expert_mesh)) {
    std::array<int, axis_count> unused{};
    for (const Axis axis : {Axis::etp, Axis::ep, Axis::edp_shard, Axis::edp_replicate}) {
      digits.push_back({axis, stride_[index(axis)], size(axis)});
    }
    digits.push_back({Axis::pp, expert_strides(layout_, unused), size(Axis::pp)});
  } else {
    for (const Axis axis : {Axis::tp, Axis::cp, Axis::sp, Axis::dp_shard, Axis::dp_replicate, Axis::pp}) {
      digits.push_back({axis, stride_[index(axis)], size(axis)});
    }
  }
  for (const Over::Pick& pick : over.picks) {
    bool known = false;
    Digit filter{pick.axis, stride_[index(pick.axis)], size(pick.axis)};
    for (Digit& digit : digits) {
      if (digit.axis != pick.axis && !is_part_of(digit.axis, pick.axis)) continue;
      digit.varies = known = true;
      if (digit.axis == pick.axis) filter = digit;
    }
    if (!known) throw InternalError("a group over axes of both meshes");
    if (pick.coordinates) filters.emplace_back(&pick, filter);
  }

  // A group's key is the rank in it whose varying coordinates are 0.
  Groups result;
  result.group_of.assign(static_cast<std::size_t>(world_), -1);
  std::vector<int> group_of_key(static_cast<std::size_t>(world_), -1);
  for (int rank = 0; rank < world_; ++rank) {
    const auto holds = [rank](const auto& filter) { return filter.second.holds(*filter.first, rank); };
    if (!std::all_of(filters.begin(), filters.end(), holds)) continue;
    int key = 0;
    for (const Digit& digit : digits) {
      if (!digit.varies) key += rank / digit.stride % digit.size * digit.stride;
    }
    int& group = group_of_key[at(key)];
    if (group < 0) {
      group = static_cast<int>(result.members.size());
      result.members.emplace_back();
    }
    result.members[at(group)].push_back(rank);
    result.group_of[at(rank)] = group;
  }
  return result;
}

}  // namespace lockstep
