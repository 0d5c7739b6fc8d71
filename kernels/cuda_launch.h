// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/launch.h"

namespace lockstep::kernels {

inline constexpr unsigned most_threads = 256;  ///< of a block

template <class Kernel, int phase>
__device__ void run_phases(const Kernel& kernel, const GridPlace& place, unsigned char* shared,
                           typename Kernel::Local& local) {
  kernel.template run<phase>(place, shared, local);
  if constexpr (phase + 1 < Kernel::phases) {
    __syncthreads();
    run_phases<Kernel, phase + 1>(kernel, place, shared, local);
  }
}

/// A kernel on a GPU: its phases, with all threads of a block meeting between them.
template <class Kernel>
__global__ void __launch_bounds__(most_threads) run_kernel(const __grid_constant__ Kernel kernel) {
  extern __shared__ __align__(16) unsigned char shared[];
  typename Kernel::Local local;
  run_phases<Kernel, 0>(kernel, {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x}, shared, local);
}

/// Lets blocks of a kernel have so much shared memory.
template <class Kernel>
cudaError_t allow_shared_bytes(std::size_t shared_bytes) {
  constexpr std::size_t without_asking = 48 * 1024;
  if (shared_bytes <= without_asking) return cudaSuccess;
  return cudaFuncSetAttribute(run_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(shared_bytes));
}

/// How many of its blocks a multiprocessor runs at once, as registers and shared memory allow. More blocks than that
/// would wait for the first ones to end, and then leave most multiprocessors idle.
template <class Kernel>
cudaError_t resident_blocks(unsigned threads, std::size_t shared_bytes, unsigned& blocks) {
  int found = 0;
  cudaError_t error = allow_shared_bytes<Kernel>(shared_bytes);
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&found, run_kernel<Kernel>, static_cast<int>(threads),
                                                          shared_bytes);
  }
  blocks = static_cast<unsigned>(found);
  return error;
}

/// Launches it on a stream, and says whether that could be done.
template <class Kernel>
cudaError_t launch_on_gpu(const Kernel& kernel, unsigned blocks, unsigned threads, std::size_t shared_bytes,
                          cudaStream_t stream = nullptr) {
  const cudaError_t error = allow_shared_bytes<Kernel>(shared_bytes);
  if (error != cudaSuccess) return error;
  run_kernel<Kernel><<<blocks, threads, shared_bytes, stream>>>(kernel);
  return cudaGetLastError();
}

}  // namespace lockstep::kernels
