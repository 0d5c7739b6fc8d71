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

/// Whether any thread of a warp says yes; all of them must come here. On the host a thread is asked alone.
LOCKSTEP_HOST_DEVICE inline bool any_of_warp(bool yes) {
#if defined(__CUDA_ARCH__)
  return __any_sync(0xFFFFFFFFu, yes) != 0;
#else
  return yes;
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

/// `sums[i] += values[i]` for each thread of a warp; all of them must come here, with the same `sums`. `count` is a
/// power of two, at most 32.
///
/// In each round a lane keeps half of its values, gives the other half to the lane across, and adds what that one gives
/// it; with one value left the rounds go on as for one sum. For four sums that takes 6 exchanges and not 20, and lanes
/// 0, 8, 16 and 24 end with one sum each.
template <unsigned count>
LOCKSTEP_HOST_DEVICE void add_from_warp(const GridPlace& place, std::uint64_t* sums,
                                        const std::uint64_t (&values)[count]) {
#if defined(__CUDA_ARCH__)
  std::uint64_t kept[count];
#pragma unroll
  for (unsigned i = 0; i < count; ++i) kept[i] = values[i];
#pragma unroll
  for (unsigned left = count; left > 1; left /= 2) {
    const unsigned reach = warp / 2 * left / count;
    const bool upper = (place.thread & reach) != 0;
#pragma unroll
    for (unsigned i = 0; i < left / 2; ++i) {
      const std::uint64_t given = upper ? kept[i] : kept[left / 2 + i];
      kept[i] = (upper ? kept[left / 2 + i] : kept[i]) + __shfl_xor_sync(0xFFFFFFFFu, given, reach);
    }
  }
#pragma unroll
  for (unsigned reach = warp / 2 / count; reach > 0; reach /= 2)
    kept[0] += __shfl_xor_sync(0xFFFFFFFFu, kept[0], reach);
  if (place.thread % (warp / count) == 0 && kept[0] != 0)
    add_atomically(sums + place.thread % warp / (warp / count), kept[0]);
#else
  static_cast<void>(place);
  for (unsigned i = 0; i < count; ++i) sums[i] += values[i];
#endif
}

}  // namespace lockstep::kernels
