// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/preparation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/base/at.h"
#include "src/numeric/windows.h"

namespace lockstep::numeric {

namespace {

// Plans of so many entries are made once and kept in memory; more of them twice, each only as long as it is needed.
constexpr double most_entries_kept = 1e5;

Dtype wider(Dtype a, Dtype b) {
  const auto bits = [](Dtype dtype) { return dtype == Dtype::float64 ? 53 : dtype == Dtype::float32 ? 24 : 8; };
  return bits(a) < bits(b) ? b : a;
}

}  // namespace

Preparation::Preparation(const Schedule& schedule, const Timeline& timeline, bool force_all, std::uint64_t seed)
    : schedule_(schedule),
      seed_(seed),
      components_(find_components(schedule, timeline)),
      planner_(schedule, timeline, components_),
      prepared_(components_.list.size()) {
  std::vector<ComponentCost> costs;
  for (const Component& component : components_.list) costs.push_back(planner_.cost(component));
  sample_ = choose_sample(components_, costs, force_all, seed);
  for (std::size_t i = 0; i < components_.list.size(); ++i) prepared_[i].skipped = !sample_.chosen[i];
  if (sample_.left_out > 0) note_what_is_left_out();
  skip_what_is_too_large();
}

std::vector<std::size_t> Preparation::chosen() const {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < prepared_.size(); ++i) {
    if (!prepared_[i].skipped) result.push_back(i);
  }
  return result;
}

void Preparation::look_at(std::size_t component) {
  Plan plan = planner_.plan(components_.list[component]);
  Prepared& prepared = prepared_[component];
  prepared.need = find_need(plan);
  prepared.cost_per_element = plan.cost_per_element;
  prepared.cuts = find_cuts(plan);
  if (sample_.entries <= most_entries_kept) prepared.plan = std::make_unique<Plan>(std::move(plan));
}

void Preparation::decide() {
  std::map<int, Need> needs;
  std::map<int, Dtype> dtypes;
  for (std::size_t i = 0; i < components_.list.size(); ++i) {
    if (prepared_[i].skipped) continue;
    const Component& component = components_.list[i];
    needs[component.family].join(prepared_[i].need);
    const Dtype dtype = buffer(component.nodes.front()).dtype;
    const auto [found, is_new] = dtypes.try_emplace(component.family, dtype);
    if (!is_new) found->second = wider(found->second, dtype);
  }
  for (std::size_t i = 0; i < components_.list.size(); ++i) {
    if (prepared_[i].skipped) continue;
    const int family = components_.list[i].family;
    prepared_[i].choice = choose_arithmetic(dtypes[family], needs[family]);
  }
  share_out_references();
  explain_arithmetic();
}

const LocalBuffer& Preparation::buffer(const BufferNode& node) const {
  return schedule_.model.local(node.rank).buffers[at(node.buffer)];
}

const std::string& Preparation::name_of(const Component& component) const {
  return schedule_.model.parameters()[at(buffer(component.nodes.front()).parameters.front())].name;
}

std::int64_t Preparation::elements_of(const Task& task) const {
  std::int64_t count = 0;
  for (const BufferNode& node : components_.list[task.component].nodes) {
    if (node.name == 0) count += size(intersect(task.elements, Interval{0, buffer(node).numel}));
  }
  return count;
}

void Preparation::note_what_is_left_out() {
  std::size_t result_buffers = 0;
  for (int rank = 0; rank < schedule_.mesh.world(); ++rank)
    result_buffers += schedule_.model.local(rank).buffers.size();
  const auto is_result = [](const BufferNode& node) { return node.name == 0; };
  std::size_t replayed = 0;
  for (std::size_t i = 0; i < components_.list.size(); ++i) {
    const auto& nodes = components_.list[i].nodes;
    if (sample_.chosen[i]) replayed += static_cast<std::size_t>(std::count_if(nodes.begin(), nodes.end(), is_result));
  }
  notes_.push_back(fmt::format(
      "The sample has elements of {} of the {} gradient buffers, some of each kind, so that its cost is bounded; "
      "the others were not replayed (--engine symbolic,host replays all).",
      replayed, result_buffers));
}

void Preparation::skip_what_is_too_large() {
  for (std::size_t i = 0; i < components_.list.size(); ++i) {
    const Component& component = components_.list[i];
    const double bytes = static_cast<double>(component.nodes.size()) * static_cast<double>(component.numel) * 16;
    if (component.aligned || bytes <= block_limit || prepared_[i].skipped) continue;
    prepared_[i].skipped = true;
    notes_.push_back(fmt::format(
        "{} and the buffers that it meets act on elements at different places, so that their {:.0f} MiB would have "
        "to be in memory at once (the limit is {:.0f} MiB); they were not replayed.",
        name_of(component), bytes / 1048576, block_limit / 1048576));
  }
}

// Each piece of a logical parameter is hashed by the first component that holds it as a result.
void Preparation::share_out_references() {
  std::set<std::pair<int, int>> taken;
  for (std::size_t i = 0; i < components_.list.size(); ++i) {
    std::map<std::pair<int, int>, std::size_t> pieces;
    std::vector<char>& hashed = prepared_[i].hashed;
    for (const BufferNode& node : components_.list[i].nodes) {
      const std::pair key(buffer(node).logical, buffer(node).piece);
      const auto [found, is_new] = pieces.try_emplace(key, hashed.size());
      if (is_new) hashed.push_back(0);
      if (node.name == 0 && taken.insert(key).second) hashed[found->second] = 1;
    }
  }
}

void Preparation::explain_arithmetic() {
  struct Group {
    std::set<int> logicals;
    int needed_bits = 0;
  };
  std::map<std::pair<Dtype, Arithmetic>, Group> groups;
  for (std::size_t i = 0; i < components_.list.size(); ++i) {
    if (prepared_[i].skipped) continue;
    for (const BufferNode& node : components_.list[i].nodes) {
      if (lockstep::name_of(buffer(node).dtype) == lockstep::name_of(prepared_[i].choice.arithmetic)) continue;
      Group& group = groups[{buffer(node).dtype, prepared_[i].choice.arithmetic}];
      group.logicals.insert(buffer(node).logical);
      group.needed_bits = std::max(group.needed_bits, prepared_[i].choice.needed_bits);
    }
  }
  for (const auto& [key, group] : groups) {
    const auto& [dtype, arithmetic] = key;
    const bool field = arithmetic == Arithmetic::prime61;
    notes_.push_back(fmt::format(
        "{} parameter{} cannot be exact in {} ({} significant bits are needed); computed {}{}.", group.logicals.size(),
        group.logicals.size() == 1 ? "" : "s", lockstep::name_of(dtype),
        group.needed_bits > Need::most_bits ? fmt::format("more than {}", Need::most_bits)
                                            : fmt::format("up to {}", group.needed_bits),
        field ? "modulo the prime 2^61 - 1" : "in ", field ? std::string_view() : lockstep::name_of(arithmetic)));
  }
}

}  // namespace lockstep::numeric
