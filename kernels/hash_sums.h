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

  /// Each thread of the block fills some; they must meet before the keys are read. With a shift, place i holds the key
  /// of place i + shift of a block of the hash, and the last places those of the first.
  LOCKSTEP_HOST_DEVICE void fill(const GridPlace& place, unsigned shift = 0) {
    for (unsigned i = place.thread; i < 2 * hash_block; i += place.threads) {
      const unsigned lane = i / hash_block;
      const std::uint64_t key = splitmix(0, lane * hash_block + (i + shift) % hash_block);
      low[lane][at(i % hash_block)] = static_cast<std::uint32_t>(key);
      high[lane][at(i % hash_block)] = static_cast<std::uint32_t>(key >> 32);
    }
  }

  /// Those of the `count` elements from `place` on: 1, or a part of a pack that begins at a multiple of its length.
  template <unsigned count>
  LOCKSTEP_HOST_DEVICE static Together<std::uint32_t, count> read(const std::uint32_t (&keys)[hash_block],
                                                                  unsigned place) {
    return *reinterpret_cast<const Together<std::uint32_t, count>*>(&keys[at(place)]);
  }

  static constexpr unsigned together = width < 4 ? width : 4;  ///< keys of a pack that are read at once

 private:
  LOCKSTEP_HOST_DEVICE static constexpr unsigned at(unsigned place) {
    constexpr unsigned packs = hash_block / width;
    return (place % width / together * packs + place / width) * together + place % together;
  }
};

/// The hashes of what one thread sees of `count` buffers. What depends on a block of 512 indices alone is done when a
/// block ends. A thread can go through `rows` blocks that follow each other at once: their keys are read once.
template <class Stored, unsigned count, unsigned rows = 1>
class HashSum {
 public:
  using Keys = HashKeys<pack<Stored>>;

  /// `shift` is that of the keys, less than a pack.
  LOCKSTEP_HOST_DEVICE explicit HashSum(unsigned shift = 0) : shift_(shift) {}
  LOCKSTEP_HOST_DEVICE unsigned shift() const { return shift_; }

  /// The same elements of each buffer, in canonical patterns.
  template <unsigned width>
  LOCKSTEP_HOST_DEVICE void add(const Keys& keys, const Together<Stored, width> (&stored)[count],
                                std::uint64_t global) {
    const auto place = static_cast<unsigned>((global - shift_) % hash_block);
    if constexpr (width > 1) {
      if (place % width != 0 || (shift_ != 0 && place == hash_block - width)) {
        // A pack that may end in the next block, or whose keys do not lie together.
        LOCKSTEP_ROLLED
        for (unsigned i = 0; i < width; ++i) {
          Together<Stored, 1> one[count];
          for (unsigned buffer = 0; buffer < count; ++buffer) one[buffer].at[0] = stored[buffer].at[i];
          add<1>(keys, one, global + i);
        }
        return;
      }
    }
    begin_block(global / hash_block);
    add_products(keys, stored, place, sums_);
  }

  /// The block of what is added next, and of the first row.
  LOCKSTEP_HOST_DEVICE void begin_block(std::uint64_t block) {
    if (block == block_) return;
    finish();
    block_ = block;
  }
  /// A pack of each row: of all buffers of one, then of the next. Their keys are those from `place` on.
  template <unsigned width>
  LOCKSTEP_HOST_DEVICE void add_rows(const Keys& keys, const Together<Stored, width> (&stored)[rows * count],
                                     unsigned place) {
    add_products(keys, stored, place, sums_);
  }
  /// What was added is of the next blocks.
  LOCKSTEP_HOST_DEVICE void move_to_next(const std::uint64_t (&moved)[rows * count][2]) {
    for (unsigned each = 0; each < rows * count; ++each) {
      for (unsigned lane = 0; lane < 2; ++lane) sums_[each][lane] -= moved[each][lane];
    }
    begin_block(block_ + 1);
    for (unsigned each = 0; each < rows * count; ++each) {
      for (unsigned lane = 0; lane < 2; ++lane) sums_[each][lane] = moved[each][lane];
    }
  }

  LOCKSTEP_HOST_DEVICE void finish() {
    for (unsigned row = 0; row < rows; ++row) {
      for (unsigned lane = 0; lane < 2; ++lane) {
        const std::uint64_t multiplier = block_multiplier(Number<Stored>::domain, lane, block_ + row);
        for (unsigned buffer = 0; buffer < count; ++buffer) {
          lanes_[2 * buffer + lane] += multiplier * sums_[row * count + buffer][lane];
          sums_[row * count + buffer][lane] = 0;
        }
      }
    }
  }
  /// After finish(): the two lanes of each buffer.
  LOCKSTEP_HOST_DEVICE const std::uint64_t (&lanes() const)[2 * count] { return lanes_; }

  /// Adds the products of some packs with the keys from `place` on.
  template <unsigned width, unsigned packs, unsigned all>
  LOCKSTEP_HOST_DEVICE static void add_products(const Keys& keys, const Together<Stored, width> (&stored)[packs],
                                                unsigned place, std::uint64_t (&sums)[all][2]) {
    constexpr unsigned length = width < Keys::together ? width : Keys::together;
    LOCKSTEP_UNROLLED
    for (unsigned part = 0; part < width; part += length) {
      LOCKSTEP_UNROLLED
      for (unsigned lane = 0; lane < 2; ++lane) {
        const auto low = Keys::template read<length>(keys.low[lane], place + part);
        const auto high = Keys::template read<length>(keys.high[lane], place + part);
        LOCKSTEP_UNROLLED
        for (unsigned i = 0; i < length; ++i) {
          LOCKSTEP_UNROLLED
          for (unsigned each = 0; each < packs; ++each)
            sums[each][lane] += product(stored_pattern(stored[each], part + i), low.at[i], high.at[i]);
        }
      }
    }
  }

 private:
  std::uint64_t lanes_[2 * count] = {}, sums_[rows * count][2] = {};
  std::uint64_t block_ = 0;
  unsigned shift_;
};

/// What one thread adds up for a check or a hash.
template <class Stored, Kind kind, unsigned rows = 1>
struct CheckSum {
  /// Of the target, and for a check of what it should be.
  static constexpr unsigned buffers_read = kind == Kind::check ? 2 : 1;

  std::uint64_t different = 0;
  HashSum<Stored, buffers_read, rows> hashes;

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
                                        std::uint64_t place, Together<Stored, width>* stored) {
    stored[0] = buffers.template read<width>(instruction.target, place);
    if constexpr (kind == Kind::check) stored[1] = buffers.template read<width>(instruction.from, place);
  }

  /// Counts the elements that differ, and makes all canonical.
  template <unsigned width>
  LOCKSTEP_HOST_DEVICE void compare(Together<Stored, width>* stored) {
    bool unusual = make_canonical(stored[0]);
    if constexpr (kind == Kind::check) unusual = make_canonical(stored[1]) || unusual;
    if constexpr (kind == Kind::check) different += count_different(stored[0], stored[1], unusual);
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
