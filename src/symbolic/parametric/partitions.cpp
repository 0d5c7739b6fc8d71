// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/partitions.h"

#include <algorithm>

#include "src/base/at.h"
#include "src/base/budget.h"

namespace lockstep::parametric {

namespace {

/// Blocks numbered by their first name.
Partition normal(const Partition& partition) {
  constexpr std::size_t names_of_a_unit = 8;
  Budget::spend(static_cast<std::int64_t>(partition.size() / names_of_a_unit));
  constexpr std::uint16_t none = 0xFFFF;
  Partition result(partition.size());
  Partition numbers(std::size_t{1} + *std::max_element(partition.begin(), partition.end()), none);
  std::uint16_t next = 0;
  for (std::size_t i = 0; i < partition.size(); ++i) {
    std::uint16_t& number = numbers[partition[i]];
    if (number == none) number = next++;
    result[i] = number;
  }
  return result;
}

int count_blocks(const Partition& partition) { return 1 + *std::max_element(partition.begin(), partition.end()); }

}  // namespace

int Partitions::number_of(const Partition& partition) const {
  const Partition wanted = normal(partition);
  const auto found = std::lower_bound(all_.begin(), all_.end(), wanted);  // extend() makes them in order
  return found == all_.end() || *found != wanted ? -1 : static_cast<int>(found - all_.begin());
}

void Partitions::extend(Partition& partial, int names, int first_constant, int most_blocks, std::size_t limit) {
  if (all_.size() > limit) return;
  const int name = static_cast<int>(partial.size());
  if (name == names) {
    all_.push_back(partial);
    return;
  }
  const int open = partial.empty() ? 0 : count_blocks(partial);
  for (int block = 0; block <= open && block < most_blocks; ++block) {
    const bool clash =
        name >= first_constant && std::find(partial.begin() + first_constant, partial.end(), block) != partial.end();
    if (clash) continue;
    partial.push_back(static_cast<std::uint16_t>(block));
    extend(partial, names, first_constant, most_blocks, limit);
    partial.pop_back();
  }
}

Partitions::Partitions(int owners, int constants, int most_blocks, std::size_t limit) {
  const int names = 2 + owners + constants;
  Partition partial;
  extend(partial, names, 2 + owners, most_blocks, limit);
  if (all_.size() > limit) {
    all_.clear();
    return;
  }
  for (const Partition& partition : all_) {
    blocks_.push_back(count_blocks(partition));
    std::vector<int>& moved = moved_.emplace_back();
    for (int name = 0; name < names; ++name) {
      Partition other = partition;
      other[0] = partition[lockstep::at(name)];
      moved.push_back(number_of(other));
    }
    Places& places = places_.emplace_back();
    for (int name = 1; name < names; ++name) {
      const int joined = moved[lockstep::at(name)];
      if (std::find(places.joined.begin(), places.joined.end(), joined) == places.joined.end())
        places.joined.push_back(joined);
    }
    Partition other = partition;
    other[0] = static_cast<std::uint16_t>(names);
    places.alone = number_of(other);
  }
}

}  // namespace lockstep::parametric
