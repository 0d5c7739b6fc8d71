// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/intervals.h"

namespace lockstep::device {

/// Some elements of every buffer, stored one behind the other: many small stretches are replayed at once, because each
/// collective costs a latency however little it carries.
class Block {
 public:
  explicit Block(Intervals elements);

  const Intervals& elements() const { return elements_; }
  std::size_t count() const { return static_cast<std::size_t>(begins_.back()); }
  /// Where the `number`-th interval of elements() is stored.
  std::int64_t begin_of(std::size_t number) const { return begins_[number]; }
  /// Where those elements of `set` are stored that it has; ascending.
  Intervals places(const Intervals& set) const;

 private:
  Intervals elements_;
  std::vector<std::int64_t> begins_;  // one more than intervals
};

/// Elements of a piece that follow each other in the logical tensor and in a block.
struct StoredRun {
  Interval place;
  std::uint64_t global = 0;  ///< global index of the first
};

/// Cuts a set of elements into blocks of equal size, of about `most` elements at most: by fewer than `stretches` more.
/// Each has a part of each of `stretches` equal stretches: ranks often own one slice each, and so all processes have
/// something to compare in every block, where otherwise one would work while the others wait. Both are at least 1.
std::vector<Block> cut_into_blocks(const Intervals& elements, std::int64_t most, std::int64_t stretches);

}  // namespace lockstep::device
