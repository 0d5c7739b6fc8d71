// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "src/device/transport.h"
#include "src/numeric/prime61.h"

namespace lockstep::test {

using device::Number;
using device::Processes;

/// Processes as threads of one program, for tests: the same collectives, computed by whoever comes last, one number
/// after the other. A call that does not fit the others', or that nobody meets, is an exception in all of them.
class ThreadJob {
 public:
  explicit ThreadJob(int processes) : processes_(processes) {}

  /// Calls work(transport) in each process. The first exception is thrown here.
  void run(const std::function<void(device::Transport&)>& work);

 private:
  friend class ThreadTransport;
  struct Call {
    int kind = 0;  // which collective
    Number number = Number::float64;
    std::vector<std::size_t> counts;
    const void* send = nullptr;
    void* receive = nullptr;
    const std::string* text = nullptr;
    std::vector<std::string>* texts = nullptr;
    auto agreed() const { return std::tuple(kind, number, counts); }
  };
  struct Room {
    std::vector<Call> calls;
    std::size_t arrived = 0, round = 0;
  };

  void meet(const Processes& group, int process, Call call, const std::function<void(std::vector<Call>&)>& work) {
    std::unique_lock lock(mutex_);
    Room& room = rooms_[group];
    room.calls.resize(group.size());
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (group[i] == process) room.calls[i] = std::move(call);
    }
    if (++room.arrived == group.size()) {
      for (const Call& each : room.calls) {
        if (each.agreed() != room.calls.front().agreed()) fail("processes make calls that do not fit");
      }
      if (!failed_) work(room.calls);
      room.arrived = 0;
      ++room.round;
      changed_.notify_all();
    } else {
      const std::size_t round = room.round;
      const auto over = [&] { return room.round != round || failed_; };
      if (!changed_.wait_for(lock, std::chrono::minutes(2), over)) fail("a process waits for others that do not come");
    }
    if (failed_) throw std::logic_error(why_);
  }
  void fail(const std::string& why) {
    failed_ = true;
    why_ = why;
    changed_.notify_all();
  }

  int processes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Processes, Room> rooms_;
  bool failed_ = false;
  std::string why_;
};

class ThreadTransport : public device::Transport {
 public:
  ThreadTransport(ThreadJob& job, int process) : job_(job), process_(process) {
    for (int i = 0; i < job.processes_; ++i) everybody_.push_back(i);
  }
  int process() const override { return process_; }
  int processes() const override { return job_.processes_; }
  int processes_here() const override { return job_.processes_; }

  void all_reduce(const Processes& group, Number number, void* values, std::size_t count) override {
    job_.meet(group, process_, {0, number, {count}, values, values}, [&](auto& calls) {
      const std::string sum = sum_of(calls, 0, count);
      for (auto& call : calls) put(call.receive, 0, sum, number, 0, count);
    });
  }
  void reduce_scatter(const Processes& group, Number number, const void* send, void* receive,
                      const std::vector<std::size_t>& counts) override {
    job_.meet(group, process_, {1, number, counts, send, receive}, [&](auto& calls) {
      std::size_t begin = 0;
      for (std::size_t i = 0; i < calls.size(); ++i) {
        put(calls[i].receive, 0, sum_of(calls, begin, counts[i]), number, 0, counts[i]);
        begin += counts[i];
      }
    });
  }
  void all_gather(const Processes& group, Number number, const void* send, void* receive,
                  const std::vector<std::size_t>& counts) override {
    job_.meet(group, process_, {2, number, counts, send, receive}, [&](auto& calls) {
      std::size_t begin = 0;
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const std::string part(static_cast<const char*>(calls[i].send), counts[i] * bytes_of(number));
        for (auto& call : calls) put(call.receive, begin, part, number, 0, counts[i]);
        begin += counts[i];
      }
    });
  }
  void broadcast(const Processes& group, Number number, void* values, std::size_t count, std::size_t root) override {
    job_.meet(group, process_, {3, number, {count, root}, values, values}, [&](auto& calls) {
      const std::string whole(static_cast<const char*>(calls[root].send), count * bytes_of(number));
      for (auto& call : calls) put(call.receive, 0, whole, number, 0, count);
    });
  }
  void reduce(const Processes& group, Number number, void* values, std::size_t count, std::size_t root) override {
    job_.meet(group, process_, {4, number, {count, root}, values, values},
              [&](auto& calls) { put(calls[root].receive, 0, sum_of(calls, 0, count), number, 0, count); });
  }
  std::vector<std::string> gather(const std::string& text) override {
    std::vector<std::string> texts = all_gather(text);
    return process_ == 0 ? texts : std::vector<std::string>();
  }
  std::vector<std::string> all_gather(const std::string& text) override {
    std::vector<std::string> texts;
    job_.meet(everybody_, process_, {5, Number::float64, {}, nullptr, nullptr, &text, &texts}, [](auto& calls) {
      for (auto& call : calls) {
        for (auto& other : calls) call.texts->push_back(*other.text);
      }
    });
    return texts;
  }
  [[noreturn]] void abort(int) override { throw std::logic_error("a process aborts the job"); }

 private:
  using Calls = std::vector<ThreadJob::Call>;
  static void put(void* to, std::size_t begin, const std::string& from, Number number, std::size_t skip,
                  std::size_t count) {
    const std::size_t width = bytes_of(number);
    if (count > 0) from.copy(static_cast<char*>(to) + begin * width, count * width, skip * width);
  }
  template <class Value, class Add>
  static std::string sum(const Calls& calls, std::size_t begin, std::size_t count, Add add) {
    std::vector<Value> total(count);
    for (const auto& call : calls) {
      for (std::size_t i = 0; i < count; ++i) total[i] = add(total[i], static_cast<const Value*>(call.send)[begin + i]);
    }
    return {reinterpret_cast<const char*>(total.data()), count * sizeof(Value)};
  }
  static std::string sum_of(const Calls& calls, std::size_t begin, std::size_t count) {
    switch (calls.front().number) {
      case Number::float32:
        return sum<float>(calls, begin, count, std::plus<>());
      case Number::float64:
        return sum<double>(calls, begin, count, std::plus<>());
      case Number::residue:
        break;
    }
    return sum<std::uint64_t>(calls, begin, count, numeric::add61);
  }

  ThreadJob& job_;
  int process_;
  Processes everybody_;
};

inline void ThreadJob::run(const std::function<void(device::Transport&)>& work) {
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (int process = 0; process < processes_; ++process) {
    threads.emplace_back([&, process] {
      ThreadTransport transport(*this, process);
      try {
        work(transport);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure) failure = std::current_exception();
        fail("another process failed");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

/// A transport that belongs to somebody else, for MpiJob.
class BorrowedTransport : public device::Transport {
 public:
  explicit BorrowedTransport(device::Transport& of) : of_(of) {}
  int process() const override { return of_.process(); }
  int processes() const override { return of_.processes(); }
  int processes_here() const override { return of_.processes_here(); }
  void all_reduce(const Processes& g, Number n, void* v, std::size_t c) override { of_.all_reduce(g, n, v, c); }
  void reduce_scatter(const Processes& g, Number n, const void* s, void* r,
                      const std::vector<std::size_t>& c) override {
    of_.reduce_scatter(g, n, s, r, c);
  }
  void all_gather(const Processes& g, Number n, const void* s, void* r, const std::vector<std::size_t>& c) override {
    of_.all_gather(g, n, s, r, c);
  }
  void broadcast(const Processes& g, Number n, void* v, std::size_t c, std::size_t r) override {
    of_.broadcast(g, n, v, c, r);
  }
  void reduce(const Processes& g, Number n, void* v, std::size_t c, std::size_t r) override {
    of_.reduce(g, n, v, c, r);
  }
  std::vector<std::string> gather(const std::string& text) override { return of_.gather(text); }
  std::vector<std::string> all_gather(const std::string& text) override { return of_.all_gather(text); }
  [[noreturn]] void abort(int status) override {
    of_.abort(status);
    throw std::logic_error("an abort returned");
  }

 private:
  device::Transport& of_;
};

}  // namespace lockstep::test
