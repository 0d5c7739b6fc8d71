// SPDX-License-Identifier: Apache-2.0
#include "src/live/value_paths.h"

#include <algorithm>
#include <cstdint>

#include "src/base/at.h"
#include "src/base/budget.h"

namespace lockstep::live {

void ValuePaths::add(int rank, int group, int root) {
  const auto [found, is_new] = places_.try_emplace({group, root}, static_cast<int>(from_.size()));
  if (is_new) {
    from_.emplace_back();
    to_.emplace_back();
  }
  if (root < 0 || rank == root) add_edge(rank, found->second);
  if (rank != root) add_edge(found->second, rank);
}

void ValuePaths::add_edge(int from, int to) {
  Budget::spend(1);
  from_[at(to)].push_back(from);
  to_[at(from)].push_back(to);
}

std::vector<int> ValuePaths::reached(int begin, const Edges& edges, std::vector<int>& seen) {
  std::vector<int> all = {begin};
  seen[at(begin)] = begin;
  for (std::size_t i = 0; i < all.size(); ++i) {
    Budget::spend(1 + std::ssize(edges[at(all[i])]) / 4);
    for (const int next : edges[at(all[i])]) {
      if (seen[at(next)] == begin) continue;
      seen[at(next)] = begin;
      all.push_back(next);
    }
  }
  return all;
}

std::vector<ValuePaths::Receivers> ValuePaths::receivers() const {
  std::vector<Receivers> all;
  // By place: the last rank from which the search got there.
  std::vector<int> before(from_.size(), -1), behind(from_.size(), -1);
  std::vector<char> is_told(at(world_), 0);
  for (int rank = 0; rank < world_; ++rank) {
    if (is_told[at(rank)] != 0) continue;
    Receivers own;
    reached(rank, to_, behind);
    for (const int place : reached(rank, from_, before)) {
      if (place >= world_) continue;
      own.from.push_back(place);
      // What comes from there and goes there has all that this rank has, and gives it all.
      if (behind[at(place)] != rank) continue;
      own.ranks.push_back(place);
      is_told[at(place)] = 1;
    }
    std::sort(own.from.begin(), own.from.end());
    std::sort(own.ranks.begin(), own.ranks.end());
    all.push_back(std::move(own));
  }
  return all;
}

}  // namespace lockstep::live
