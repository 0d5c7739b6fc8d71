// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/walk_memory.h"

#include "src/schedule/selector_list.h"

namespace lockstep::schedule {

namespace {

std::string key_of(const Over& over) {
  std::string key;
  for (const Over::Pick& pick : over.picks) {
    key += std::string(name_of(pick.axis));
    if (pick.coordinates) {
      for (int coordinate : *pick.coordinates) key += "," + std::to_string(coordinate);
    }
    key += ";";
  }
  return key;
}

}  // namespace

const Contributions& WalkMemory::contributions() {
  std::call_once(once_, [this] { contributions_.emplace(*schedule_); });
  return *contributions_;
}

const std::vector<int>& WalkMemory::selected(const Selectors& params, const LocalModel& local) {
  const auto [found, is_new] = selections_.try_emplace({local.id, params.items()});
  if (is_new) {
    const SelectorList selectors(params.items());
    for (std::size_t i = 0; i < local.buffers.size(); ++i) {
      if (selectors.chooses(schedule_->model, local.buffers[i])) found->second.push_back(static_cast<int>(i));
    }
  }
  return found->second;
}

Rational WalkMemory::by(const Step& step, int rank, int optimizer_step, int micro_batch) {
  constexpr std::size_t most = 10'000;
  const std::tuple key(&step.by->tree(), rank, optimizer_step, micro_batch);
  if (const auto known = factors_.find(key); known != factors_.end()) return known->second.second;
  const Rational value = Factors(*schedule_).by(step, rank, optimizer_step, micro_batch);
  if (factors_.size() < most) factors_.emplace(key, std::pair(*step.by, value));
  return value;
}

const std::vector<int>& WalkMemory::groups_of(const Over& over) {
  std::vector<int>& of_rank = groups_of_[key_of(over)];
  if (!of_rank.empty()) return of_rank;
  const Groups groups = schedule_->mesh.groups(over);
  std::vector<int> numbers;
  for (const std::vector<int>& ranks : groups.members) {
    const auto [found, is_new] = numbers_.emplace(ranks, static_cast<int>(members_.size()));
    if (is_new) members_.push_back(found);
    numbers.push_back(found->second);
  }
  for (const int group : groups.group_of) of_rank.push_back(group < 0 ? -1 : numbers[at(group)]);
  return of_rank;
}

}  // namespace lockstep::schedule
