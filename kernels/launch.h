// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

/// In front of a loop that is seldom run: copies of its body would only take time to compile.
#if defined(__CUDA_ARCH__)
#define LOCKSTEP_ROLLED _Pragma("unroll 1")
#else
#define LOCKSTEP_ROLLED
#endif

/// In front of a loop over an array that is to lie in registers.
#if defined(__CUDA_ARCH__)
#define LOCKSTEP_UNROLLED _Pragma("unroll")
#else
#define LOCKSTEP_UNROLLED
#endif

namespace lockstep::kernels {

// A kernel is a struct of its arguments, with
//   static constexpr int phases          parts between which all threads of a block meet
//   struct Local                         what a thread keeps from phase to phase
//   template <int phase> void run(const GridPlace&, unsigned char* shared, Local&) const
// It is written once: on a GPU a __global__ function runs its phases with __syncthreads() between them
// (cuda_launch.h), without one the host runs the same grid thread by thread (host_launch.h).

/// Where a thread stands. A block has a multiple of 32 threads.
struct GridPlace {
  unsigned block = 0, blocks = 1, thread = 0, threads = 1;

  LOCKSTEP_HOST_DEVICE std::uint64_t index() const { return std::uint64_t{block} * threads + thread; }
  LOCKSTEP_HOST_DEVICE std::uint64_t count() const { return std::uint64_t{blocks} * threads; }
};

inline constexpr unsigned warp = 32;  ///< threads that run together

/// `*sum += value`, from any threads at once.
LOCKSTEP_HOST_DEVICE inline void add_atomically(std::uint64_t* sum, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(value));
#else
  *sum += value;
#endif
}

/// `*sum += value` for each thread of a warp; all of them must come here, with the same `sum`.
LOCKSTEP_HOST_DEVICE inline void add_from_warp(const GridPlace& place, std::uint64_t* sum, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
  for (unsigned reach = warp / 2; reach > 0; reach /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, reach);
  if (place.thread % warp == 0 && value != 0) add_atomically(sum, value);
#else
  static_cast<void>(place);
  *sum += value;
#endif
}

}  // namespace lockstep::kernels
