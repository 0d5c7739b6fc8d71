// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/sample.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "src/numeric/mix.h"

namespace lockstep::numeric {

namespace {

/// Numbers of the components, one of each kind in turn, those of a kind in an order drawn with `seed`.
std::vector<std::size_t> in_turn(const std::vector<Component>& list, std::uint64_t seed) {
  std::map<std::tuple<std::size_t, std::int64_t, std::size_t>, std::vector<std::size_t>> kinds;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].numel > 0) kinds[{list[i].nodes.size(), list[i].numel, list[i].uses.size()}].push_back(i);
  }
  struct Place {
    std::size_t turn, component;
  };
  std::vector<Place> places;
  for (auto& [kind, members] : kinds) {
    for (std::size_t i = members.size(); i > 1; --i) std::swap(members[i - 1], members[splitmix(seed, i) % i]);
    for (std::size_t i = 0; i < members.size(); ++i) places.push_back({i, members[i]});
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.turn < b.turn; });
  std::vector<std::size_t> order;
  for (const Place& place : places) order.push_back(place.component);
  return order;
}

/// The least that a sample of the component costs: both its ends, and a block in between.
double least_cost(const Component& component, const ComponentCost& cost) {
  const std::int64_t elements =
      component.aligned ? std::min(component.numel, 4 * sample_reach + sample_block) : component.numel;
  return static_cast<double>(elements) * cost.per_element;
}

}  // namespace

Sample choose_sample(const Components& components, const std::vector<ComponentCost>& costs, bool force_all,
                     std::uint64_t seed) {
  const std::vector<Component>& list = components.list;
  Sample sample;
  for (std::size_t i = 0; i < list.size(); ++i) {
    sample.cost += static_cast<double>(list[i].numel) * costs[i].per_element;
    sample.entries += costs[i].entries;
  }
  sample.sampled = !force_all && (sample.cost > cost_limit || sample.entries > entry_limit);
  sample.chosen.assign(list.size(), sample.sampled ? 0 : 1);
  if (!sample.sampled) return sample;
  sample.cost = 0;
  sample.entries = 0;
  double least = 0;
  const auto take = [&](std::size_t i) {
    sample.chosen[i] = 1;
    sample.cost += static_cast<double>(list[i].numel) * costs[i].per_element;
    least += least_cost(list[i], costs[i]);
    sample.entries += costs[i].entries;
  };
  const std::vector<std::size_t> order = in_turn(list, seed);
  for (const std::size_t i : order) {
    if (least + least_cost(list[i], costs[i]) <= cost_limit / 2 && sample.entries + costs[i].entries <= entry_limit)
      take(i);
  }
  if (sample.cost == 0 && !order.empty()) {
    take(*std::min_element(order.begin(), order.end(),
                           [&](std::size_t a, std::size_t b) { return costs[a].entries < costs[b].entries; }));
  }
  sample.left_out = static_cast<std::size_t>(std::count(sample.chosen.begin(), sample.chosen.end(), 0));
  return sample;
}

}  // namespace lockstep::numeric
