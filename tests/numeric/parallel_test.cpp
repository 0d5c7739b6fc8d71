// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/parallel.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
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

TEST_CASE("no more threads work than were asked for, and the caller is one of them") {
  for (const int threads : {1, 2}) {
    std::mutex mutex;
    std::set<std::thread::id> seen;
    parallel_for(60, threads, [&](std::size_t) {
      // Long enough for any other thread to get something to do.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    CHECK(seen.size() <= static_cast<std::size_t>(threads));
    CHECK(seen.contains(std::this_thread::get_id()));
  }
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
