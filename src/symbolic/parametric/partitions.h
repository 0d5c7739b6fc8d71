// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "src/base/at.h"

namespace lockstep::parametric {

/// Which of the named coordinates of one axis are equal: for each name the number of its block; blocks are numbered by
/// their first name. Names: 0 the rank, 1 the contributor, then owners, then constants, which all differ.
// Of two bytes, as g++ 12 warns of the comparison of vectors of single ones.
using Partition = std::vector<std::uint16_t>;
inline constexpr int rank_name = 0;
inline constexpr int contributor_name = 1;

/// All partitions of the names of one axis, with what the steps of a schedule do to them.
class Partitions {
 public:
  /// Those with at most `most_blocks` blocks, which is the size of an axis that has a known one. More than `limit` are
  /// not made: size() is then 0. `most_blocks` is at least `constants`.
  Partitions(int owners, int constants, int most_blocks, std::size_t limit);

  int size() const { return static_cast<int>(all_.size()); }
  const Partition& at(int number) const { return all_[lockstep::at(number)]; }
  /// The number of a partition with its blocks numbered in any way; -1 where there is none.
  int number_of(const Partition& partition) const;
  int blocks(int number) const { return blocks_[lockstep::at(number)]; }
  bool equal(int number, int a, int b) const {
    const Partition& one = at(number);
    return one[lockstep::at(a)] == one[lockstep::at(b)];
  }
  /// The partition in which the rank is where `name` is, all else as in `number`.
  int moved(int number, int name) const { return moved_[lockstep::at(number)][lockstep::at(name)]; }
  /// Without the rank: one partition for each block that it can join, and the one in which it is alone.
  struct Places {
    std::vector<int> joined;
    int alone = -1;  ///< -1: there is no coordinate left
  };
  const Places& places(int number) const { return places_[lockstep::at(number)]; }

 private:
  void extend(Partition& partial, int names, int first_constant, int most_blocks, std::size_t limit);
  std::vector<Partition> all_;
  std::vector<int> blocks_;
  std::vector<std::vector<int>> moved_;
  std::vector<Places> places_;
};

}  // namespace lockstep::parametric
