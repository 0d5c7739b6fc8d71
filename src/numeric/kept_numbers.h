// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/numeric/shared_blocks.h"

namespace lockstep::numeric {

/// The generator's numbers of one block: what the replay has generated the reference does not generate again. They are
/// found by what the generator was asked for, so that the reference still decides by itself which numbers it adds up.
class KeptNumbers {
 public:
  explicit KeptNumbers(std::size_t block) : numbers_(most, AlignedVector<std::int32_t>()), block_(block) {}

  void clear() { kept_.clear(); }

  /// Room for `count` numbers of `key` from index `first` on, to be filled by the caller before the next call; null
  /// where there is no more: then they are not kept. `count` is at most that of a block. Valid until clear().
  std::int32_t* keep(std::uint64_t key, std::uint64_t first, std::size_t count) {
    if (kept_.size() == most) return nullptr;
    AlignedVector<std::int32_t>& numbers = numbers_[kept_.size()];
    if (numbers.empty()) numbers.resize(block_);
    kept_.push_back({key, first, count});
    return numbers.data();
  }
  /// Null where they were not kept. Valid until clear().
  const std::int32_t* find(std::uint64_t key, std::uint64_t first, std::size_t count) const {
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if (kept_[i].key == key && kept_[i].first == first && kept_[i].count == count) return numbers_[i].data();
    }
    return nullptr;
  }

 private:
  static constexpr std::size_t most = 8;  // more would not stay in the second-level cache with the buffers
  struct Kept {
    std::uint64_t key = 0, first = 0;
    std::size_t count = 0;
  };
  std::vector<AlignedVector<std::int32_t>> numbers_;
  std::size_t block_;
  std::vector<Kept> kept_;
};

}  // namespace lockstep::numeric
