// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace lockstep::numeric {

int thread_count(int wanted) {
  if (wanted > 0) return wanted;
  static const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // reads files
  return all;
}

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto loop = [&] {
    for (std::size_t index; (index = next.fetch_add(1)) < count;) {
      try {
        work(index);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::thread> others;
  const std::size_t wanted = std::min(static_cast<std::size_t>(std::max(threads, 1)), count);
  try {
    for (std::size_t i = 1; i < wanted; ++i) others.emplace_back(loop);
  } catch (const std::system_error&) {
    // The machine gives no more of them: those that there are do the work.
  }
  loop();
  for (std::thread& thread : others) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep::numeric
