// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/ownership.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "src/base/at.h"

namespace lockstep::schedule {

namespace {

Intervals whole(const LocalBuffer& buffer) { return buffer.numel == 0 ? Intervals{} : Intervals{{0, buffer.numel}}; }

}  // namespace

Ownership::Ownership(const Schedule& schedule) : schedule_(&schedule) {
  std::size_t total = 0;
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    first_.push_back(total);
    total += schedule.model.local(rank).buffers.size();
  }
  first_.push_back(total);
  owned_.reserve(total);
  scattered_.resize(total);
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    for (const LocalBuffer& buffer : schedule.model.local(rank).buffers) owned_.push_back(whole(buffer));
  }
}

std::vector<int>& Ownership::parents(int optimizer_step) {
  std::vector<int>& list = parents_[optimizer_step];
  if (list.empty()) {
    list.resize(first_.back());
    std::iota(list.begin(), list.end(), 0);
  }
  return list;
}

int Ownership::root_of(std::vector<int>& parents, int index) {
  while (parents[at(index)] != index) {
    int& parent = parents[at(index)];
    parent = parents[at(parent)];
    index = parent;
  }
  return index;
}

void Ownership::join(const std::vector<int>& optimizer_steps, const std::vector<int>& ranks,
                     const std::vector<int>& buffers) {
  std::map<int, int> first_of_step;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::vector<int>& list = parents(optimizer_steps[i]);
    const int own = root_of(list, static_cast<int>(index(ranks[i], buffers[i])));
    const auto [found, is_new] = first_of_step.emplace(optimizer_steps[i], own);
    if (is_new) continue;
    const int other = root_of(list, found->second);
    list[at(std::max(own, other))] = std::min(own, other);
  }
}

std::vector<Intervals> Ownership::finish(int rank) {
  std::vector<Intervals> result;
  const auto& buffers = schedule_->model.local(rank).buffers;
  for (std::size_t buffer = 0; buffer < buffers.size(); ++buffer) {
    Intervals& owned = owned_[index(rank, static_cast<int>(buffer))];
    result.push_back(std::move(owned));
    owned = whole(buffers[buffer]);
    scattered_[index(rank, static_cast<int>(buffer))].reset();
  }
  return result;
}

std::vector<std::vector<int>> Ownership::families(int optimizer_step) {
  std::vector<int>& list = parents(optimizer_step);
  std::map<std::tuple<int, int, int, int>, int> first_of_family;
  std::vector<std::vector<int>> result;
  for (int rank = 0; rank < schedule_->mesh.world(); ++rank) {
    std::vector<int>& row = result.emplace_back();
    const int stage = schedule_->mesh.coordinate(rank, Axis::pp);
    for (const LocalBuffer& buffer : schedule_->model.local(rank).buffers) {
      const int own = static_cast<int>(index(rank, static_cast<int>(row.size())));
      const int root = root_of(list, own);
      row.push_back(first_of_family.emplace(std::tuple(root, buffer.logical, buffer.piece, stage), own).first->second);
    }
  }
  return result;
}

}  // namespace lockstep::schedule
