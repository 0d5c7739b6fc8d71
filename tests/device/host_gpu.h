// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <new>
#include <random>
#include <set>

#include "kernels/host_launch.h"
#include "src/device/kernel_gpu.h"

namespace lockstep::test {

/// Runs kernels on the host, thread by thread, in memory that is checked: all of it is released, and its size is kept
/// to. What is launched on streams runs in an order drawn with the seed, in which only each stream's own order and
/// marks count.
class HostLauncher {
 public:
  HostLauncher(device::GpuFacts facts, unsigned seed) : facts_(std::move(facts)), seed_(seed), random_(seed) {}
  HostLauncher(const HostLauncher&) = delete;
  HostLauncher& operator=(const HostLauncher&) = delete;
  ~HostLauncher() {
    if (!allocated_.empty()) std::abort();  // memory of the GPU was not given back
  }

  const device::GpuFacts& facts() const { return facts_; }
  void* allocate(std::uint64_t bytes) {
    if (used_ + bytes > facts_.free_memory) throw device::GpuFailure("out of memory while " + what_);
    void* memory = ::operator new(bytes, std::align_val_t{256});
    std::memset(memory, 0xA5, bytes);
    allocated_[memory] = bytes;
    used_ += bytes;
    most_used = std::max(most_used, used_);
    return memory;
  }
  void release(void* memory) noexcept {
    for (auto& stream : streams_) stream.clear();  // as after a failure: nothing waits for it any more
    used_ -= allocated_.at(memory);
    allocated_.erase(memory);
    ::operator delete(memory, std::align_val_t{256});
  }
  void clear(void* memory, std::uint64_t bytes) {
    finish();
    std::memset(memory, 0, bytes);
  }
  void upload(void* to, const void* from, std::uint64_t bytes) {
    finish();
    std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::uint64_t bytes) {
    finish();
    std::memcpy(to, from, bytes);
  }
  void use_stream(unsigned stream) { stream_ = stream; }
  void record(std::uint32_t mark) {
    const std::uint64_t number = ++marks_set_;
    mark_numbers_[mark] = number;
    if (stream_ != 0) streams_[stream_].push_back({{}, number, 0});
  }
  void wait_for(std::uint32_t mark) {
    const std::uint64_t number = mark_numbers_.at(mark);  // one that was set
    if (stream_ != 0) streams_[stream_].push_back({{}, 0, number});
  }
  void describe(const std::string& what) { what_ = what; }

  template <class Kernel>
  void launch(const Kernel& kernel, unsigned blocks, unsigned threads, std::uint64_t shared_bytes) {
    if (shared_bytes > facts_.block_memory) throw std::logic_error("more memory than a block has");
    if (++launches == fails_at) throw device::GpuFailure("a launch failed while " + what_);
    if constexpr (is_fused<Kernel>) ++fused_launches;
    if (stream_ != 0) {
      ++stream_launches;
      streams_[stream_].push_back({[=, seed = seed_ + static_cast<unsigned>(launches)] {
                                     kernels::launch_on_host(kernel, blocks, threads, shared_bytes, seed);
                                   },
                                   0, 0});
      return;
    }
    finish();
    kernels::launch_on_host(kernel, blocks, threads, shared_bytes, seed_ + static_cast<unsigned>(launches));
    if constexpr (is_fused<Kernel>) kernel.results[kernel.result_count - 1] ^= spoils_fused ? 1 : 0;
  }

  std::uint64_t launches = 0, fused_launches = 0, stream_launches = 0;
  std::uint64_t fails_at = 0;  ///< number of the launch that fails; 0: none
  std::uint64_t most_used = 0;
  bool spoils_fused = false;  ///< what is computed in one kernel gets a wrong bit

 private:
  struct Entry {
    std::function<void()> work;
    std::uint64_t sets = 0, waits_for = 0;  // numbers of marks, each time that one is set
  };

  /// Everything that was launched, in some order that it may have.
  void finish() {
    while (true) {
      std::vector<std::deque<Entry>*> ready;
      bool all_done = true;
      for (auto& stream : streams_) {
        if (stream.empty()) continue;
        all_done = false;
        const Entry& next = stream.front();
        if (next.waits_for == 0 || reached_.contains(next.waits_for)) ready.push_back(&stream);
      }
      if (all_done) break;
      if (ready.empty()) throw std::logic_error("streams wait for each other");
      std::deque<Entry>& chosen = *ready[random_() % ready.size()];
      const Entry next = std::move(chosen.front());
      chosen.pop_front();
      if (next.work) next.work();
      if (next.sets != 0) reached_.insert(next.sets);
    }
    reached_.clear();
    for (auto& [mark, number] : mark_numbers_) reached_.insert(number);
  }

  template <class Kernel>
  static constexpr bool is_fused = requires(Kernel kernel) { kernel.instructions; };

  device::GpuFacts facts_;
  unsigned seed_;
  std::string what_;
  std::mt19937 random_;
  unsigned stream_ = 0;
  std::array<std::deque<Entry>, device::streams> streams_;
  std::uint64_t marks_set_ = 0;
  std::map<std::uint32_t, std::uint64_t> mark_numbers_;
  std::set<std::uint64_t> reached_;
  std::map<void*, std::uint64_t> allocated_;
  std::uint64_t used_ = 0;
};

/// Its kernels are compiled in tests/device/host, as they take half a minute.
using HostGpu = device::KernelGpu<HostLauncher>;

inline device::GpuFacts host_facts(std::uint64_t free_memory = std::uint64_t{1} << 28,
                                   std::uint64_t block_memory = 100'000) {
  return {"GPU 0 (host)", free_memory, free_memory, block_memory, 2};
}

}  // namespace lockstep::test

extern template class lockstep::device::KernelGpu<lockstep::test::HostLauncher>;
