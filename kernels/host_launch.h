// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/launch.h"

namespace lockstep::kernels {

/// Runs the grid of a kernel thread by thread: one block after the other, in each the phases in order, every thread of
/// a phase to its end before the next. Blocks and the threads of a phase come in an order drawn with `seed`, and shared
/// memory begins as garbage, so that what a GPU does not promise is not relied on.
template <class Kernel>
void launch_on_host(const Kernel& kernel, unsigned blocks, unsigned threads, std::size_t shared_bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<unsigned> block_order(blocks), thread_order(threads);
  std::iota(block_order.begin(), block_order.end(), 0u);
  std::iota(thread_order.begin(), thread_order.end(), 0u);
  std::shuffle(block_order.begin(), block_order.end(), random);
  struct alignas(16) Chunk {
    unsigned char bytes[16];
  };
  std::vector<Chunk> shared(shared_bytes / sizeof(Chunk) + 1);
  std::vector<typename Kernel::Local> locals;
  for (const unsigned block : block_order) {
    std::memset(shared.data(), 0xA5, shared.size() * sizeof(Chunk));
    locals.assign(threads, {});
    [&]<int... phase>(std::integer_sequence<int, phase...>) {
      const auto run_phase = [&]<int number>() {
        std::shuffle(thread_order.begin(), thread_order.end(), random);
        for (const unsigned thread : thread_order) {
          kernel.template run<number>(GridPlace{block, blocks, thread, threads}, shared.front().bytes, locals[thread]);
        }
      };
      (run_phase.template operator()<phase>(), ...);
    }(std::make_integer_sequence<int, Kernel::phases>());
  }
}

}  // namespace lockstep::kernels
