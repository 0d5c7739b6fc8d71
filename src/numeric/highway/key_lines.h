// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "src/numeric/hash_keys.h"

namespace lockstep::numeric {

/// The keys of one lane for loops that go through a block a cache line of keys at a time. The lines stand in descending
/// order, the keys within a line in ascending order: elements are read upwards and keys downwards. With both upwards,
/// the prefetchers of AMD's Zen 4 follow the keys, which are in cache anyhow and begin anew with each block, and lose
/// the elements: float32 came from memory at 55 % of what the same loop does in cache, and with keys downwards at 94 %.
/// For the same reason two lines lie between one table and the next.
template <class Key>
struct KeyLines {
  static constexpr std::size_t line = 64 / sizeof(Key);

  /// Where the key of a place stands; those of its line's later places come behind it.
  static constexpr std::size_t index(std::size_t place) {
    return hash_block - line - place / line * line + place % line;
  }
  const Key* at(std::size_t index) const { return keys.data() + index; }

  alignas(64) std::array<Key, hash_block + 2 * line> keys{};
};

/// `next_high` holds at each place the high half of the place after it.
struct HashKeyLines {
  KeyLines<std::uint64_t> whole[2];
  KeyLines<std::uint32_t> low[2], high[2], next_high[2];
};

constexpr HashKeyLines make_hash_key_lines() {
  using Halves = KeyLines<std::uint32_t>;
  HashKeyLines lines;
  for (std::size_t lane = 0; lane < 2; ++lane) {
    for (std::size_t place = 0; place < hash_block; ++place) {
      const std::uint64_t key = hash_key(lane, place);
      const auto high = static_cast<std::uint32_t>(key >> 32);
      lines.whole[lane].keys[KeyLines<std::uint64_t>::index(place)] = key;
      lines.low[lane].keys[Halves::index(place)] = static_cast<std::uint32_t>(key);
      lines.high[lane].keys[Halves::index(place)] = high;
      if (place > 0) lines.next_high[lane].keys[Halves::index(place - 1)] = high;
    }
  }
  return lines;
}

inline constexpr HashKeyLines hash_key_lines = make_hash_key_lines();

}  // namespace lockstep::numeric
