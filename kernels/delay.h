// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/launch.h"

namespace lockstep::kernels {

/// Takes about so long, and does nothing. On the host it takes no time: there streams are run in an order that is
/// drawn.
struct DelayKernel {
  static constexpr int phases = 1;
  struct Local {};
  std::uint64_t nanoseconds = 0;

  template <int>
  LOCKSTEP_HOST_DEVICE void run(const GridPlace&, unsigned char*, Local&) const {
#if defined(__CUDA_ARCH__)
    const std::uint64_t begin = now();
    while (now() - begin < nanoseconds) __nanosleep(1000);
#endif
  }

 private:
#if defined(__CUDACC__)
  __device__ static std::uint64_t now() {
    std::uint64_t time = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
  }
#endif
};

}  // namespace lockstep::kernels
