// SPDX-License-Identifier: Apache-2.0
#include "src/report/placements.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::report {

std::vector<std::pair<std::string, std::string>> placements(const Mesh& mesh, const Parameter& parameter) {
  const auto in = [](const std::vector<Axis>& axes, Axis axis) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  // A parameter of the expert mesh is one that names one of its axes.
  bool expert = false;
  for (const Shard& shard : parameter.shard) expert = expert || is_expert_axis(shard.axis);
  for (const Axis axis : parameter.partial) expert = expert || is_expert_axis(axis);
  for (const Axis axis : parameter.dispatch) expert = expert || is_expert_axis(axis);
  std::vector<Axis> axes = expert ? std::vector<Axis>{Axis::edp, Axis::ep, Axis::etp}
                                  : std::vector<Axis>{Axis::dp, Axis::sp, Axis::cp, Axis::tp};
  if (!expert && mesh.layout().dp_replicate > 1) {
    axes.erase(axes.begin());
    axes.insert(axes.begin(), {Axis::dp_replicate, Axis::dp_shard});
  }
  std::vector<std::pair<std::string, std::string>> list;
  for (const Axis axis : axes) {
    if (mesh.size(axis) == 1) continue;
    std::string placement = in(parameter.partial, axis) ? "P" : in(parameter.dispatch, axis) ? "D" : "R";
    for (const Shard& shard : parameter.shard) {
      if (shard.axis == axis) placement = fmt::format("S({})", shard.dim);
    }
    list.emplace_back(std::string(name_of(axis)), std::move(placement));
  }
  return list;
}

std::string over_text(const Over& over) {
  const bool picks = std::any_of(over.picks.begin(), over.picks.end(),
                                 [](const Over::Pick& pick) { return pick.coordinates.has_value(); });
  std::vector<std::string> parts;
  for (const Over::Pick& pick : over.picks) {
    if (!picks) {
      parts.emplace_back(name_of(pick.axis));
    } else if (pick.coordinates) {
      parts.push_back(fmt::format("{}: [{}]", name_of(pick.axis), fmt::join(*pick.coordinates, ", ")));
    } else {
      parts.push_back(fmt::format("{}: all", name_of(pick.axis)));
    }
  }
  if (picks) return fmt::format("{{{}}}", fmt::join(parts, ", "));
  return parts.size() == 1 ? parts.front() : fmt::format("[{}]", fmt::join(parts, ", "));
}

}  // namespace lockstep::report
