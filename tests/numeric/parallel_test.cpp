// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/parallel.h"

#include <atomic>
#include <stdexcept>
#include <vector>

#include "tests/catch.h"

using namespace lockstep::numeric;

TEST_CASE("every index is worked on once, whatever the number of threads") {
  for (const int threads : {1, 2, 7}) {
    for (const std::size_t count : {0u, 1u, 5u, 1000u}) {
      std::vector<std::atomic<int>> done(count);
      parallel_for(count, threads, [&](std::size_t index) { ++done[index]; });
      for (const auto& times : done) CHECK(times == 1);
    }
  }
  CHECK(thread_count(3) == 3);
  CHECK(thread_count(0) >= 1);
}

TEST_CASE("an exception of any thread reaches the caller and ends the rest") {
  std::atomic<int> calls = 0;
  const auto fail = [&](std::size_t index) {
    ++calls;
    if (index == 3) throw std::runtime_error("three");
  };
  CHECK_THROWS_AS(parallel_for(1'000'000, 3, fail), std::runtime_error);
  CHECK(calls < 1'000'000);
}
