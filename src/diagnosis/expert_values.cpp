// SPDX-License-Identifier: Apache-2.0
// Groups and sizes as a step would have them, which depends on the mesh of what it acts on.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/diagnosis/candidate_values.h"

namespace lockstep::diagnosis {

bool CandidateValues::is_of_experts(const Step& step) const {
  return std::any_of(written.begin(), written.end(),
                     [&](const Written& one) { return one.step == step.name && one.of_experts; });
}

std::vector<Product> CandidateValues::sizes_for(bool of_experts) const {
  std::vector<Product> list = sizes;
  if (of_experts) {
    std::stable_partition(list.begin(), list.end(), [this](const Product& size) {
      const std::set<std::string> names = size.expression().names();
      return std::none_of(dense_axes.begin(), dense_axes.end(),
                          [&](const std::string& axis) { return names.contains(axis); });
    });
  }
  return list;
}

const Over& CandidateValues::group_of_new(Op op, bool of_experts, std::size_t group) const {
  for (const Op like : {op, op == Op::all_gather ? Op::reduce_scatter : op}) {
    for (const Written& other : written) {
      if (other.group == group && other.op == like && other.of_experts == of_experts) return *other.over;
    }
  }
  return of_experts ? expert_groups[group] : groups[group];
}

std::optional<Over> CandidateValues::group_for(const Step& step, std::size_t group) const {
  const auto own =
      std::find_if(written.begin(), written.end(), [&](const Written& one) { return one.step == step.name; });
  const bool of_experts = is_of_experts(step);
  if (own != written.end() && own->group == group) return std::nullopt;
  for (const Written& other : written) {
    if (other.group == group && other.op == step.op && other.of_experts == of_experts) return other.over;
  }
  Over over = of_experts ? expert_groups[group] : groups[group];
  const auto has_ranks = [this](Axis axis) {
    std::string name(name_of(axis));
    name.resize(std::min(name.find('_'), name.size()));  // "dp_shard" has ranks where "dp" has
    return std::find(dense_axes.begin(), dense_axes.end(), name) != dense_axes.end() ||
           std::find(expert_axes.begin(), expert_axes.end(), name) != expert_axes.end();
  };
  const auto names_coordinates = [](const Over::Pick& pick) { return pick.coordinates.has_value(); };
  if (!step.over || step.over->picks.size() < 2 ||
      std::any_of(step.over->picks.begin(), step.over->picks.end(), names_coordinates) ||
      std::any_of(over.picks.begin(), over.picks.end(), names_coordinates))
    return over;
  const auto is_expert = [](const Over::Pick& pick) { return is_expert_axis(pick.axis); };
  const bool expert_mesh = std::any_of(over.picks.begin(), over.picks.end(), is_expert);
  Over listed;
  for (const Over::Pick& pick : step.over->picks) {
    if (pick.axis != Axis::pp && is_expert(pick) != expert_mesh) return over;
    const bool is_in = std::find(over.picks.begin(), over.picks.end(), pick) != over.picks.end();
    if (is_in || !has_ranks(pick.axis)) listed.picks.push_back(pick);
  }
  for (const Over::Pick& pick : over.picks) {
    if (std::find(listed.picks.begin(), listed.picks.end(), pick) == listed.picks.end()) listed.picks.push_back(pick);
  }
  return listed;
}

}  // namespace lockstep::diagnosis
