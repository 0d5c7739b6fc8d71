// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "lockstep/check.h"
#include "src/diagnosis/engines.h"
#include "src/diagnosis/machine_share.h"
#include "src/transformer/known_references.h"

namespace lockstep {

namespace {

/// Each check may take as much memory as a small one may, and so may each result that waits to be taken.
constexpr std::size_t most_threads = 8;

/// Checks files on threads of its own, a few ahead of the one that is taken next.
class CheckQueue {
 public:
  CheckQueue(const std::vector<std::string>& files, const CheckOptions& options, std::size_t threads)
      : files_(files), options_(options), ahead_(threads + 2), found_(files.size()) {
    options_.side_by_side = &side_by_side_;
    try {
      for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // The machine gives no more of them: those that there are do the work.
      if (threads_.empty()) throw;
    }
  }
  CheckQueue(const CheckQueue&) = delete;
  CheckQueue& operator=(const CheckQueue&) = delete;
  ~CheckQueue() {
    {
      const std::lock_guard lock(mutex_);
      next_ = files_.size();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  /// The result of file `index`; each is taken once, in ascending order.
  CheckResult take(std::size_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return found_[index].done; });
    Found found = std::move(found_[index]);
    found_[index] = {};
    taken_ = index + 1;
    lock.unlock();
    changed_.notify_all();
    if (found.failure) std::rethrow_exception(found.failure);
    return std::move(found.result);
  }

 private:
  struct Found {
    bool done = false;
    CheckResult result;
    std::exception_ptr failure;
  };

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return next_ >= files_.size() || next_ < taken_ + ahead_; });
      if (next_ >= files_.size()) return;
      const std::size_t index = next_++;
      lock.unlock();
      Found found;
      try {
        found.result = check_file(files_[index], options_);
      } catch (...) {
        found.failure = std::current_exception();
      }
      found.done = true;
      lock.lock();
      found_[index] = std::move(found);
      changed_.notify_all();
    }
  }

  const std::vector<std::string>& files_;
  CheckOptions options_;
  std::size_t ahead_;  // results that may wait: each holds its scenario and all its forms
  diagnosis::SharedMachine side_by_side_;
  std::mutex mutex_;  // for everything below
  std::condition_variable changed_;
  std::vector<Found> found_;
  std::size_t next_ = 0, taken_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace

void check_files(const std::vector<std::string>& files, const CheckOptions& asked,
                 const std::function<void(const CheckResult&)>& take) {
  transformer::KnownReferences references;
  CheckOptions options = asked;
  options.references = &references;
  const std::size_t wanted = options.jobs > 0
                                 ? static_cast<std::size_t>(options.jobs)
                                 : std::min<std::size_t>(std::thread::hardware_concurrency(), most_threads);
  const std::size_t threads = std::min(wanted, files.size());
  // The processes of a job go through the files together, and a GPU is used by one thread.
  if (threads < 2 || options.cuda != nullptr || diagnosis::job_of(options) != nullptr) {
    for (const std::string& file : files) take(check_file(file, options));
    return;
  }
  CheckQueue queue(files, options, threads);
  for (std::size_t index = 0; index < files.size(); ++index) take(queue.take(index));
}

}  // namespace lockstep
