// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/elements.h"

namespace lockstep::kernels {

/// The keys of docs/hash.md, in the memory of a block, for packs of `width` elements. Threads of a warp read the keys
/// of packs that follow each other, 16 bytes at a time; where a pack's keys are longer, all first halves lie together,
/// and all second halves, so that the reads of a quarter of a warp are in different banks.
template <unsigned width>
struct HashKeys {
  std::uint32_t low[2][hash_block], high[2][hash_block];

  /// Each thread of the block fills some; they must meet before the keys are read.
  LOCKSTEP_HOST_DEVICE void fill(const GridPlace& place) {
    for (unsigned i = place.thread; i < 2 * hash_block; i += place.threads) {
      const std::uint64_t key = splitmix(0, i);
      low[i / hash_block][at(i % hash_block)] = static_cast<std::uint32_t>(key);
      high[i / hash_block][at(i % hash_block)] = static_cast<std::uint32_t>(key >> 32);
    }
  }

  /// Those of the `count` elements from `place` on: 1, or a pack that begins at a multiple of its width.
  template <unsigned count>
  LOCKSTEP_HOST_DEVICE static Together<std::uint32_t, count> read(const std::uint32_t (&keys)[hash_block],
                                                                  unsigned place) {
    constexpr unsigned length = count < together ? count : together;
    Together<std::uint32_t, count> result;
    for (unsigned i = 0; i < count; i += length) {
      const auto some = *reinterpret_cast<const Together<std::uint32_t, length>*>(&keys[at(place + i)]);
      for (unsigned j = 0; j < length; ++j) result.at[i + j] = some.at[j];
    }
    return result;
  }

 private:
  static constexpr unsigned together = width < 4 ? width : 4;  ///< keys of a pack that are read at once

  LOCKSTEP_HOST_DEVICE static constexpr unsigned at(unsigned place) {
    constexpr unsigned packs = hash_block / width;
    return (place % width / together * packs + place / width) * together + place % together;
  }
};

/// The hashes of what one thread sees of `count` buffers. What depends on a block of 512 indices alone is done when a
/// block ends.
template <class Stored, unsigned count>
class HashSum {
 public:
  using Keys = HashKeys<pack<Stored>>;

  /// The same elements of each buffer.
  template <unsigned width>
  LOCKSTEP_HOST_DEVICE void add(const Keys& keys, const Together<Stored, width> (&stored)[count],
                                std::uint64_t global) {
    if (global % width == 0) return add_aligned<width>(keys, stored, global);
    // A pack that may end in the next block, and whose keys do not lie together.
    LOCKSTEP_ROLLED
    for (unsigned i = 0; i < width; ++i) {
      Together<Stored, 1> one[count];
      for (unsigned buffer = 0; buffer < count; ++buffer) one[buffer].at[0] = stored[buffer].at[i];
      add_aligned<1>(keys, one, global + i);
    }
  }

  /// The same where `global` is a multiple of `width`.
  template <unsigned width>
  LOCKSTEP_HOST_DEVICE void add_aligned(const Keys& keys, const Together<Stored, width> (&stored)[count],
                                        std::uint64_t global) {
    if (global / hash_block != block_) {
      finish();
      block_ = global / hash_block;
    }
    const auto place = static_cast<unsigned>(global % hash_block);
    for (unsigned lane = 0; lane < 2; ++lane) {
      const auto low = Keys::template read<width>(keys.low[lane], place);
      const auto high = Keys::template read<width>(keys.high[lane], place);
      for (unsigned buffer = 0; buffer < count; ++buffer) {
        for (unsigned i = 0; i < width; ++i)
          sums_[buffer][lane] += product(Number<Stored>::pattern(stored[buffer].at[i]), low.at[i], high.at[i]);
      }
    }
  }

  LOCKSTEP_HOST_DEVICE void finish() {
    for (unsigned lane = 0; lane < 2; ++lane) {
      const std::uint64_t multiplier = block_multiplier(Number<Stored>::domain, lane, block_);
      for (unsigned buffer = 0; buffer < count; ++buffer) {
        lanes_[2 * buffer + lane] += multiplier * sums_[buffer][lane];
        sums_[buffer][lane] = 0;
      }
    }
  }
  /// After finish(): the two lanes of each buffer.
  LOCKSTEP_HOST_DEVICE const std::uint64_t (&lanes() const)[2 * count] { return lanes_; }

 private:
  std::uint64_t lanes_[2 * count] = {}, sums_[count][2] = {};
  std::uint64_t block_ = 0;
};

/// What one thread adds up for a check or a hash.
template <class Stored, Kind kind>
struct CheckSum {
  /// Of the target, and for a check of what it should be.
  static constexpr unsigned buffers_read = kind == Kind::check ? 2 : 1;

  std::uint64_t different = 0;
  HashSum<Stored, buffers_read> hashes;

  /// `width` elements of `span` from `place` on.
  template <unsigned width>
  LOCKSTEP_HOST_DEVICE void add(const Instruction& instruction, const HashKeys<pack<Stored>>& keys,
                                const Buffers<Stored>& buffers, const Span& span, std::uint64_t place) {
    Together<Stored, width> stored[buffers_read];
    load<width>(instruction, buffers, place, stored);
    compare<width>(stored);
    if (kind == Kind::hash || instruction.hashes != 0)
      hashes.template add<width>(keys, stored, span.other + (place - span.begin));
  }

  template <unsigned width>
  LOCKSTEP_HOST_DEVICE static void load(const Instruction& instruction, const Buffers<Stored>& buffers,
                                        std::uint64_t place, Together<Stored, width> (&stored)[buffers_read]) {
    stored[0] = buffers.template read<width>(instruction.target, place);
    if constexpr (kind == Kind::check) stored[1] = buffers.template read<width>(instruction.from, place);
  }

  template <unsigned width>
  LOCKSTEP_HOST_DEVICE void compare(const Together<Stored, width> (&stored)[buffers_read]) {
    if constexpr (kind == Kind::check) {
      for (unsigned i = 0; i < width; ++i)
        different += Number<Stored>::load(stored[0].at[i]) != Number<Stored>::load(stored[1].at[i]) ? 1u : 0u;
    }
  }

  /// Adds it to the sums of all; called by all threads of a warp.
  LOCKSTEP_HOST_DEVICE void add_to(const GridPlace& place, const Instruction& instruction, std::uint64_t* results) {
    if constexpr (kind == Kind::check) {
      if (any_of_warp(different != 0)) add_from_warp(place, results, different);
      if (instruction.hashes == 0) return;
    }
    hashes.finish();
    add_from_warp(place, results + (kind == Kind::check ? 1 : 0), hashes.lanes());
  }
};

}  // namespace lockstep::kernels
