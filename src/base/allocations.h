// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// What this thread has allocated. Counted where memory is allocated, in a program that is linked with
/// src/cli/count_allocations.cpp; elsewhere, as where the library is part of another program, it stays zero.
struct Allocations {
  std::int64_t units = 0;  ///< of work, which the next Budget::spend() takes
  std::int64_t live = 0;   ///< bytes; less than zero where a thread frees what another one allocated

  /// An allocation costs some tens of nanoseconds, and one of many bytes as much as writing them.
  void add(std::size_t size) {
    constexpr std::size_t bytes_of_a_unit = 64;
    units += 1 + static_cast<std::int64_t>(size / bytes_of_a_unit);
    live += taken_for(size);
  }
  void remove(std::size_t size) { live -= taken_for(size); }

  /// What malloc of glibc takes: eight bytes of its own, in steps of 16, and not less than 32. It depends on the number
  /// alone and not on what was freed before, so that the same work always counts the same.
  static std::int64_t taken_for(std::size_t size) {
    constexpr std::size_t own = 8, step = 16, least = 32;
    const std::size_t taken = (size + own + step - 1) & ~(step - 1);
    return static_cast<std::int64_t>(taken < least ? least : taken);
  }
};

inline constinit thread_local Allocations allocations_of_thread;

}  // namespace lockstep
