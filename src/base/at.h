// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <concepts>
#include <cstddef>

namespace lockstep {

/// A rank, parameter, step or another number that counts from 0, as an index: `buffers[at(buffer)]`. It is never
/// negative where it is asked for, which debug builds check.
template <std::signed_integral Number>
constexpr std::size_t at(Number number) {
  assert(number >= 0);
  return static_cast<std::size_t>(number);
}

}  // namespace lockstep
