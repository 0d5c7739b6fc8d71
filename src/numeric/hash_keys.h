// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "src/numeric/mix.h"

namespace lockstep::numeric {

inline constexpr std::size_t hash_block = 512;

/// The key of docs/hash.md for a lane and a place in the block.
constexpr std::uint64_t hash_key(std::size_t lane, std::size_t place) { return splitmix(0, hash_block * lane + place); }

/// All of them by lane and place: whole, and their low and high halves.
struct HashKeys {
  template <class Key>
  using Table = std::array<std::array<Key, hash_block>, 2>;
  alignas(64) Table<std::uint64_t> whole{};
  alignas(64) Table<std::uint32_t> low{}, high{};
};

constexpr HashKeys make_hash_keys() {
  HashKeys keys;
  for (std::size_t lane = 0; lane < 2; ++lane) {
    for (std::size_t place = 0; place < hash_block; ++place) {
      const std::uint64_t key = hash_key(lane, place);
      keys.whole[lane][place] = key;
      keys.low[lane][place] = static_cast<std::uint32_t>(key);
      keys.high[lane][place] = static_cast<std::uint32_t>(key >> 32);
    }
  }
  return keys;
}

inline constexpr HashKeys hash_keys = make_hash_keys();

}  // namespace lockstep::numeric
