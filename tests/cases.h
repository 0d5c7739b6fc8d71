// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>

#if defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_HAS_SANITIZERS true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_HAS_SANITIZERS true
#endif
#endif
#ifndef LOCKSTEP_HAS_SANITIZERS
#define LOCKSTEP_HAS_SANITIZERS false
#endif

namespace lockstep::test {

/// Under sanitizers a case takes ten to fifty times as long, and shows something else: not a wrong result, which the
/// release build finds on all cases, but a wrong access, which needs each kind of case and few of each. So one case in
/// so many is tried there.
inline constexpr unsigned one_in = LOCKSTEP_HAS_SANITIZERS ? 20 : 1;

/// How many of `all` random cases are tried; LOCKSTEP_TEST_ROUNDS in the environment (tools/nightly) times as many.
/// Sanitizers try `sanitized` times fewer, where so many show each kind of case.
inline unsigned cases(unsigned all, unsigned sanitized = one_in) {
  const char* rounds = std::getenv("LOCKSTEP_TEST_ROUNDS");
  return all / (LOCKSTEP_HAS_SANITIZERS ? sanitized : 1u) *
         (rounds == nullptr ? 1u : static_cast<unsigned>(std::max(1, std::stoi(rounds))));
}

/// Whether one of a fixed list of cases is tried: under sanitizers one in so many, the others are the release build's.
inline bool is_tried(std::size_t number) {
  return number % one_in == 0 || std::getenv("LOCKSTEP_TEST_ROUNDS") != nullptr;
}

}  // namespace lockstep::test
