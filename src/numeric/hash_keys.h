// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "src/numeric/mix.h"

namespace lockstep::numeric {

inline constexpr std::size_t hash_block = 512;

/// The keys of docs/hash.md by lane and place in the block, in the forms in which loops read them: whole, and their low
/// and high halves; `next_high` holds at each place the high half of the place after it.
struct HashKeys {
  template <class Key>
  using Table = std::array<std::array<Key, hash_block>, 2>;
  alignas(64) Table<std::uint64_t> whole{};
  alignas(64) Table<std::uint32_t> low{}, high{}, next_high{};
};

constexpr HashKeys make_hash_keys() {
  HashKeys keys;
  for (std::size_t lane = 0; lane < 2; ++lane) {
    for (std::size_t j = 0; j < hash_block; ++j) {
      const std::uint64_t key = splitmix(0, hash_block * lane + j);
      keys.whole[lane][j] = key;
      keys.low[lane][j] = static_cast<std::uint32_t>(key);
      keys.high[lane][j] = static_cast<std::uint32_t>(key >> 32);
      if (j > 0) keys.next_high[lane][j - 1] = keys.high[lane][j];
    }
  }
  return keys;
}

inline constexpr HashKeys hash_keys = make_hash_keys();

}  // namespace lockstep::numeric
