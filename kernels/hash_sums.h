// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/elements.h"

namespace lockstep::kernels {

/// The keys of docs/hash.md, in the memory of a block.
struct HashKeys {
  std::uint32_t low[2][hash_block], high[2][hash_block];

  /// Each thread of the block fills some; they must meet before the keys are read.
  LOCKSTEP_HOST_DEVICE void fill(const GridPlace& place) {
    for (unsigned i = place.thread; i < 2 * hash_block; i += place.threads) {
      const std::uint64_t key = splitmix(0, i);
      low[i / hash_block][i % hash_block] = static_cast<std::uint32_t>(key);
      high[i / hash_block][i % hash_block] = static_cast<std::uint32_t>(key >> 32);
    }
  }
};

/// The hash of what one thread sees. What depends on a block of 512 indices alone is done when a block ends.
template <class Stored>
class HashSum {
 public:
  template <unsigned width>
  LOCKSTEP_HOST_DEVICE void add(const HashKeys& keys, const Together<Stored, width>& stored, std::uint64_t global) {
    const auto place = static_cast<unsigned>(global % hash_block);
    if (place % width != 0) {  // a pack that may end in the next block, and whose keys do not lie together
      LOCKSTEP_ROLLED
      for (unsigned i = 0; i < width; ++i) add<1>(keys, Together<Stored, 1>{{stored.at[i]}}, global + i);
      return;
    }
    if (global / hash_block != block_) {
      finish();
      block_ = global / hash_block;
    }
    for (unsigned lane = 0; lane < 2; ++lane) {
      const auto low = *reinterpret_cast<const Together<std::uint32_t, width>*>(&keys.low[lane][place]);
      const auto high = *reinterpret_cast<const Together<std::uint32_t, width>*>(&keys.high[lane][place]);
      for (unsigned i = 0; i < width; ++i)
        sums_[lane] += product(Number<Stored>::pattern(stored.at[i]), low.at[i], high.at[i]);
    }
  }

  LOCKSTEP_HOST_DEVICE void finish() {
    for (unsigned lane = 0; lane < 2; ++lane) {
      if (sums_[lane] != 0) lanes_[lane] += block_multiplier(Number<Stored>::domain, lane, block_) * sums_[lane];
      sums_[lane] = 0;
    }
  }
  /// After finish().
  LOCKSTEP_HOST_DEVICE std::uint64_t lane(unsigned number) const { return lanes_[number]; }

 private:
  std::uint64_t lanes_[2] = {}, sums_[2] = {};
  std::uint64_t block_ = 0;
};

/// What one thread adds up for a check or a hash.
template <class Stored>
struct CheckSum {
  std::uint64_t different = 0;
  HashSum<Stored> got, expected;

  template <unsigned width>
  LOCKSTEP_HOST_DEVICE void compare(const Instruction& instruction, const HashKeys& keys,
                                    const Buffers<Stored>& buffers, const Span& span, std::uint64_t place) {
    const auto target = buffers.template read<width>(instruction.target, place);
    const auto from = buffers.template read<width>(instruction.from, place);
    for (unsigned i = 0; i < width; ++i)
      different += Number<Stored>::load(target.at[i]) != Number<Stored>::load(from.at[i]) ? 1u : 0u;
    if (instruction.hashes == 0) return;
    const std::uint64_t global = span.other + (place - span.begin);
    got.template add<width>(keys, target, global);
    expected.template add<width>(keys, from, global);
  }

  template <unsigned width>
  LOCKSTEP_HOST_DEVICE void hash(const Instruction& instruction, const HashKeys& keys, const Buffers<Stored>& buffers,
                                 const Span& span, std::uint64_t place) {
    got.template add<width>(keys, buffers.template read<width>(instruction.target, place),
                            span.other + (place - span.begin));
  }

  /// Adds it to the sums of all; called by all threads of a warp.
  LOCKSTEP_HOST_DEVICE void add_to(const GridPlace& place, const Instruction& instruction, std::uint64_t* results) {
    got.finish();
    if (instruction.kind == Kind::hash) {
      for (unsigned lane = 0; lane < 2; ++lane) add_from_warp(place, results + lane, got.lane(lane));
      return;
    }
    add_from_warp(place, results, different);
    if (instruction.hashes == 0) return;
    expected.finish();
    for (unsigned lane = 0; lane < 2; ++lane) {
      add_from_warp(place, results + 1 + lane, got.lane(lane));
      add_from_warp(place, results + 3 + lane, expected.lane(lane));
    }
  }
};

}  // namespace lockstep::kernels
